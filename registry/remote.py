"""A workspace's DVC cache and remote: the objects that ``dvc.lock`` records, fetched one by one by their hash.

DVC itself never checks anything out here. A forced ``dvc pull`` of a part of an output removes the whole output when
the remote lacks its ``.dir`` object, and a granular ``dvc fetch`` that failed once leaves an index behind with which
later ones fail too, or end well without the file (seen with dvc 3.67; dvc issue 10492 is of the same family).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from llm360.errors import RegistryError, StoreUnavailable
from llm360.progress import say

LOGGERS = ("dvc", "dvc_data", "dvc_objects")  # whose warnings say why an object did not come
NEXT = "nothing here was changed; see `dvc remote list`, or build it: make repro"


def fetch(root: Path, wanted: Sequence[str]) -> dict[Path, Path]:
    """Return each wanted file's sound object in the cache, fetched where it is not; ``wanted`` are files or folders.

    Paths are relative to ``root``, and so are the keys. Nothing outside DVC's cache is touched. Raises StoreUnavailable
    with DVC's own words when an object is neither in the cache nor to be had from the remote.
    """
    if not (root / ".dvc").is_dir():
        raise StoreUnavailable(f"{root} is no DVC workspace, so there is no remote; `make repro` builds it")
    say(f"fetching {' '.join(wanted)}")
    with _words() as words:
        try:
            return _fetch(root.resolve(), wanted, words)
        except RegistryError:
            raise
        except Exception as error:  # remotes are plug-ins: each has its own errors
            raise StoreUnavailable(f"DVC says: {_told([*words, str(error)])}; {NEXT}") from error


def _fetch(root: Path, wanted: Sequence[str], words: list[str]) -> dict[Path, Path]:
    from dvc.repo import Repo  # type: ignore[import-untyped]

    with contextlib.closing(Repo(str(root))) as repo:
        found: dict[Path, str] = {}
        for target in wanted:
            found |= _recorded(repo, root, root / target, words)
        objects = _objects(repo, set(found.values()), ", ".join(wanted), words)
    return {path.relative_to(root): objects[md5] for path, md5 in found.items()}


def _recorded(repo: Any, root: Path, target: Path, words: list[str]) -> dict[Path, str]:
    """Return the md5 that DVC records for each file at or below ``target``."""
    for out in repo.index.outs:
        top, md5 = Path(out.fs_path), out.hash_info.value if out.hash_info else None
        if md5 is not None and (top == target or top in target.parents):
            files = {top: md5} if not md5.endswith(".dir") else _tree(repo, top, md5, words)
            inside = {path: own for path, own in files.items() if path == target or target in path.parents}
            if inside:
                return inside
    name = target.relative_to(root)
    raise StoreUnavailable(
        f"no dvc.lock here records {name}, so no remote can be asked for it; check the commit that has it out "
        f"(git log dvc.lock), or build it: make repro"
    )


def _tree(repo: Any, top: Path, md5: str, words: list[str]) -> dict[Path, str]:
    listing = _objects(repo, {md5}, f"the list of files of {top.name}", words)[md5]
    return {top / entry["relpath"]: entry["md5"] for entry in json.loads(listing.read_bytes())}


def _objects(repo: Any, md5s: Iterable[str], what: str, words: list[str]) -> dict[str, Path]:
    """Return the objects' files in the cache; one that is altered is removed and asked for again, once."""
    from dvc_data.hashfile.hash_info import HashInfo

    paths = {md5: Path(repo.cache.local.oid_to_path(md5)) for md5 in sorted(md5s)}
    if absent := _absent(paths):
        repo.cloud.pull([HashInfo("md5", md5) for md5 in absent])
        if absent := _absent({md5: paths[md5] for md5 in absent}):
            told = _told(words) or "the remote's bytes are not those of the name"
            raise StoreUnavailable(
                f"{what}: {len(absent)} of {len(paths)} objects are not to be had, first {absent[0]}; "
                f"DVC says: {told}; {NEXT}"
            )
    return paths


def _absent(paths: dict[str, Path]) -> list[str]:
    absent = []
    for md5, path in paths.items():
        if not path.is_file() or file_md5(path) != md5.removesuffix(".dir"):
            path.unlink(missing_ok=True)  # altered through a hard link: DVC would hand it out for ever
            absent.append(md5)
    return absent


def file_md5(path: Path) -> str:
    """Return a file's md5 in hex, by which DVC names its objects."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "md5").hexdigest()


def _told(words: Sequence[str]) -> str:
    return " / ".join(line for line in "\n".join(words).splitlines() if line.strip())


@contextlib.contextmanager
def _words() -> Iterator[list[str]]:
    """Collect DVC's warnings inside the block instead of printing them."""
    words: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield words
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
