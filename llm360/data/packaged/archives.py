"""Reading .deb and .whl archives in pure Python, without trusting the paths and links inside them."""

from __future__ import annotations

import fnmatch
import io
import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from llm360.errors import IntegrityError, SourceError

SWITCH = (
    "use the sources made from Python packages alone: "
    "make repro SOURCES=python (or python -m stages.compose sources=python)"
)


def unpack(archive: Path, root: Path, *, reads: tuple[str, ...]) -> int:
    """Write the members of a .deb or .whl that match one of the patterns ``reads`` below ``root``; return how many.

    Raises SourceError when none matches, IntegrityError when the archive is damaged or has a path outside itself.
    """
    count = 0
    for name, data in members(archive, reads):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        count += 1
    if not count:
        raise SourceError(f"{archive.name}: nothing in it matches {', '.join(reads)}; correct the source's `reads`")
    return count


def members(archive: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the regular files that match a pattern; links and devices are never followed or made."""
    try:
        yield from (_wheel_members if archive.suffix == ".whl" else _deb_members)(archive, patterns)
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        raise IntegrityError(f"{archive}: damaged ({error}); fetch it again: python -m stages.packages") from error


def _wheel_members(archive: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as wheel:
        for info in wheel.infolist():
            name = _safe(info.filename, archive)
            if not info.is_dir() and _matches(name, patterns):
                yield name, wheel.read(info)


def _deb_members(archive: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(_data_tar(archive))) as tar:
        for info in tar:
            name = _safe(info.name, archive)
            handle = tar.extractfile(info) if info.isreg() and _matches(name, patterns) else None
            if handle is not None:
                yield name, handle.read()


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _safe(name: str, archive: Path) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise IntegrityError(f"{archive}: holds the path {name!r}, which leaves the folder; do not use this file")
    return path.as_posix()


def _data_tar(archive: Path) -> bytes:
    """Return the data archive of a .deb, an ``ar`` file of debian-binary, control.tar.* and data.tar.*."""
    data = archive.read_bytes()
    if not data.startswith(b"!<arch>\n"):
        raise IntegrityError(f"{archive}: not a .deb (no ar header); fetch it again: python -m stages.packages")
    offset = 8
    while offset < len(data):
        header = data[offset : offset + 60]  # name 16, time 12, owner 6, group 6, mode 8, size 10, end 2
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if offset + 60 + size > len(data):
            raise IntegrityError(f"{archive}: ends within {name}; fetch it again: python -m stages.packages")
        if name.startswith("data.tar"):
            return _zstd(archive) if name.endswith(".zst") else data[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2
    raise IntegrityError(f"{archive}: no data.tar in it; fetch it again: python -m stages.packages")


def _zstd(archive: Path) -> bytes:
    """Let dpkg-deb read what Ubuntu compresses with zstd, which Python 3.11 cannot."""
    if shutil.which("dpkg-deb") is None:
        raise SourceError(f"{archive}: compressed with zstd and no dpkg-deb here; {SWITCH}")
    return subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], capture_output=True, check=True).stdout
