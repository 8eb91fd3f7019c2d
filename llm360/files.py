"""Files that appear whole or not at all, their hashes, and the manifest that is written last."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llm360.errors import IntegrityError, StorageFull

MANIFEST = "manifest.json"
PARTIAL = ".partial-"  # prefix of what is being written; never a finished artifact


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of an artifact: path inside it (POSIX), size in bytes, sha256 in hex."""

    path: str
    bytes: int
    sha256: str


def sha256_bytes(data: bytes) -> str:
    """Return the sha256 of ``data`` in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file in hex, read in constant memory."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` by rename, so that a reader sees the old file or the whole new one."""
    with new_file(path) as partial, open(partial, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def copy_file(source: Path, path: Path) -> None:
    """Copy ``source`` to ``path`` by rename, in constant memory, as a file of its own (no link)."""
    with new_file(path) as partial:
        shutil.copyfile(source, partial)


def link_file(source: Path, path: Path) -> None:
    """Give the finished file ``source`` a second name, or copy it where the file system cannot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.hardlink_to(source)
    except OSError:
        copy_file(source, path)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys, by rename."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; raises IntegrityError naming the file when it cannot be parsed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise IntegrityError(f"{path}: not valid JSON ({error}); delete it and rebuild the artifact") from error


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a path that becomes ``path`` by rename when the block ends well; a failure leaves ``path`` untouched."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    try:
        with named_when_full(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``folder`` by rename when the block ends well.

    An existing ``folder`` is replaced at that moment and not before; a failure leaves it untouched.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{PARTIAL}{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with named_when_full(folder):
            yield partial
            _swap(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _swap(partial: Path, folder: Path) -> None:
    if folder.exists():
        old = folder.with_name(f"{PARTIAL}old-{folder.name}")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old)
    else:
        os.replace(partial, folder)


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half written directly inside ``folder``."""
    for path in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def named_when_full(path: Path) -> Iterator[None]:
    """Turn the error of a full device into StorageFull, naming what was being written."""
    try:
        yield
    except Exception as error:
        if not _is_full(error):
            raise
        there = next(folder for folder in path.absolute().parents if folder.exists())
        free = shutil.disk_usage(there).free
        raise StorageFull(
            f"{path}: no space left ({free / 1e6:.0f} MB free); nothing there was changed. "
            f"Free some space and run the same command again: finished work is kept."
        ) from error


def _is_full(error: Exception) -> bool:
    """Return whether an error says that the device is full; libraries in Rust say it in words of their own."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(words in str(error) for words in ("os error 28", "os error 122", "No space left on device"))


def entries(folder: Path) -> list[FileEntry]:
    """Return every file below ``folder`` but its manifest, sorted by path, with size and sha256."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST)
    return [
        FileEntry(path=p.relative_to(folder).as_posix(), bytes=p.stat().st_size, sha256=sha256_file(p)) for p in files
    ]


def write_manifest(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write ``manifest.json`` last: the given fields and an entry for every file; present means complete."""
    files = [dataclasses.asdict(e) for e in entries(folder)]
    write_json(folder / MANIFEST, {**fields, "files": files})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest; raises IntegrityError when it is missing or cannot be read."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IntegrityError(f"{folder}: no {MANIFEST}, so it is not complete; rebuild it (dvc repro) or pull it")
    return dict(read_json(path))


def is_whole(folder: Path) -> bool:
    """Return whether a folder has a manifest and every file that it names, by size; contents are not read.

    DVC replaces files by links one after the other when it commits an output, so a kill can take one away.
    """
    if not (folder / MANIFEST).is_file():
        return False
    files = [(folder / e["path"], e["bytes"]) for e in read_manifest(folder)["files"]]
    return all(path.is_file() and path.stat().st_size == size for path, size in files)


def manifest_sha256(folder: Path) -> str:
    """Return the hash of a folder's manifest, which names all its content."""
    read_manifest(folder)
    return sha256_file(folder / MANIFEST)


def verify(folder: Path, *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check files against the manifest (all, or the paths in ``only``) and return the manifest.

    Raises IntegrityError naming the file with the expected and the found size or sha256.
    """
    manifest = read_manifest(folder)
    named = {e["path"]: FileEntry(**e) for e in manifest["files"]}
    if unknown := sorted(set(only) - named.keys()):
        raise IntegrityError(f"{folder / MANIFEST}: does not name {unknown[0]}; rebuild this folder: dvc repro")
    for path in only or named:
        verify_file(folder / path, named[path])
    return manifest


def verify_file(path: Path, entry: FileEntry) -> None:
    """Check one file's size and sha256; raises IntegrityError."""
    if not path.is_file():
        raise IntegrityError(f"{path}: missing, though the manifest names it; pull or rebuild it")
    size = path.stat().st_size
    if size != entry.bytes:
        raise IntegrityError(f"{path}: {size} bytes, expected {entry.bytes}; the file is cut or altered: pull it again")
    found = sha256_file(path)
    if found != entry.sha256:
        raise IntegrityError(f"{path}: sha256 {found}, expected {entry.sha256}; the file is altered: pull it again")
