"""What every stage entry shares: its section of params.yaml, its lock, and outputs that are filled item by item."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import yaml

from llm360.config import canonical_json, from_mapping, require_positive, short, value_differences
from llm360.errors import ConfigError, LLM360Error, Locked, did_you_mean
from llm360.files import read_json, sha256_bytes, write_json
from llm360.launch import in_ranks
from llm360.processes import die_with_parent
from llm360.progress import say
from llm360.trackers import require_known
from stages import PARENT

T = TypeVar("T")
ARTIFACTS = Path("artifacts")
PARAMS = Path("params.yaml")
FINGERPRINT = "fingerprint.json"
LOCK_SECONDS = 5.0
NAMED = 4  # of the values that make a recipe another one: so many are named
TOLD = dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or run as its owner")
TOLD |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space and run the same command again")
DVC_STAGE = "DVC_STAGE"  # set by DVC for the commands that it runs


def section(path: str, cls: type[T]) -> T:
    """Return the dotted section of params.yaml as the dataclass ``cls``; raises ConfigError with a hint."""
    return from_mapping(cls, mapping(path), where=f"{PARAMS}: {path}")


def mapping(path: str) -> dict[str, Any]:
    """Return the dotted section of params.yaml as a plain mapping; raises ConfigError with a hint."""
    if not PARAMS.is_file():
        raise ConfigError(f"{PARAMS}: not here; run from the project's root, or compose it: python -m stages.compose")
    try:
        value: Any = yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{PARAMS}: not YAML ({reason}); mend it, or compose it: python -m stages.compose") from error
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            known = value if isinstance(value, Mapping) else ()
            raise ConfigError(f"{PARAMS}: no section {path!r}; {did_you_mean(key, map(str, known))}")
        value = value[key]
    if not isinstance(value, Mapping):
        raise ConfigError(f"{PARAMS}: {path}: read {value!r}, expected a mapping")
    return dict(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """How stages run.

    threads: of torch, fixed, since the bytes of training depend on their number. workers: processes that share the
    work on data, of which no byte depends on their number. ranks: processes that train one model together, in
    ``replicas`` groups that each hold all of it in parts. trackers: where steps are shown live, beside the files.
    """

    threads: int
    workers: int
    ranks: int
    replicas: int
    trackers: list[str]

    def __post_init__(self) -> None:
        require_positive(self, "threads", "workers", "ranks", "replicas")
        require_known(self.trackers)


def threads() -> int:
    """Return torch's thread count of params.yaml."""
    return section("runtime", Runtime).threads


def workers() -> int:
    """Return the number of processes of params.yaml."""
    return section("runtime", Runtime).workers


@contextlib.contextmanager
def stage(out: Path) -> Iterator[None]:
    """Run a stage that writes ``out``: alone, not outliving its parent, errors as one line and exit code 1."""
    if not in_ranks():  # their parent is the one who launched them, and asked this for itself
        end_without_parent()
    with one_line_errors(), _lock(out):
        yield


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print an error that the project raises on purpose, or a folder that cannot be written, as one line; exit 1."""
    try:
        yield
    except LLM360Error as error:
        say(f"error: {type(error).__name__}: {error}")
        raise SystemExit(1) from error
    except OSError as error:
        if error.errno not in TOLD:
            raise
        say(f"error: {error.filename or 'a file'}: {error.strerror}; {TOLD[error.errno]}")
        raise SystemExit(1) from error


def end_without_parent() -> None:
    """A killed ``dvc repro`` leaves its stage running (measured); ask the kernel to end it as well.

    The kernel cannot tell of a parent that died before it was asked, while this process was still importing.
    Then another process has adopted this one: not the parent that it had when it began to import or, if dvc died
    within those first milliseconds, one of another session than the one that dvc shared with it.
    """
    die_with_parent()
    if DVC_STAGE in os.environ and (os.getppid() != PARENT or os.getsid(os.getppid()) != os.getsid(0)):
        say(f"{os.environ[DVC_STAGE]}: the dvc that started this stage is gone; nothing was written")
        raise SystemExit(1)


@contextlib.contextmanager
def _lock(out: Path) -> Iterator[None]:
    path = ARTIFACTS / ".locks" / f"{sha256_bytes(str(out).encode())[:16]}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as handle:
        _take(handle, out)
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _take(handle: IO[str], out: Path) -> None:
    """Take the lock, waiting a little: a process that was killed may need a moment to be gone."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                handle.seek(0)
                raise Locked(
                    f"{out}: process {handle.read().strip() or '?'} is writing it (perhaps left by a killed dvc); "
                    f"wait for it or end it, then run the same command again"
                ) from error
        time.sleep(0.1)


def persistent(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Prepare a folder that is filled item by item over several runs.

    Items stay when ``folder`` was begun by the same recipe; otherwise what changed is said and they go
    (DVC's cache keeps what was finished), so nothing made by another recipe is ever reused.
    """
    path = folder / FINGERPRINT
    old = read_json(path) if path.is_file() else None
    if old is not None and canonical_json(old) == canonical_json(recipe):
        return
    if folder.exists() and any(folder.iterdir()):
        say(f"{folder}: made by another recipe ({_changes(old, recipe)}); building it anew")
        path.unlink(missing_ok=True)  # first, so that what a kill leaves is not taken for whole
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, recipe)


def remove_work(folder: Path) -> None:
    """Remove a folder that ``persistent`` prepared; a kill on the way leaves none that is taken for whole."""
    (folder / FINGERPRINT).unlink(missing_ok=True)
    shutil.rmtree(folder)


def _changes(old: Any, new: Mapping[str, Any]) -> str:
    if not isinstance(old, Mapping):
        return "no fingerprint"
    found = [f"{path}: {short(a)} -> {short(b)}" for path, a, b in value_differences(old, new)]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
