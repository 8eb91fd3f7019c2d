"""What the benchmarks of data share: a fresh process for each run, the memory of its tree, a table, versions."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak over a run of the sum over its processes, in bytes, sampled every SAMPLE_SECONDS.

    resident is RSS: file-backed pages count, and a page that two processes share counts twice. anonymous leaves the
    file-backed pages out: what the processes hold for themselves.
    """

    resident: int
    anonymous: int


def in_fresh_process(function: Callable[[Any], Any], argument: Any) -> tuple[Any, Memory]:
    """Return what a function of a module returns in a new interpreter, and the memory that took."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, function, argument))
    process.start()
    there.close()
    peak = _Peak(process.pid or 0)
    try:
        value = here.recv()
    except EOFError:
        raise SystemExit(f"{function.__qualname__} failed; its error is above, expected a figure") from None
    finally:
        memory = peak.stop()
        process.join()
    return value, memory


def _serve(answer: Connection, function: Callable[[Any], Any], argument: Any) -> None:
    from llm360.processes import die_with_parent

    die_with_parent()
    answer.send(function(argument))


class _Peak:
    """Samples the memory of a process and of all below it, in a thread, until stopped."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._resident = self._anonymous = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            pages = [_pages(pid) for pid in _tree(self._pid)]
            self._resident = max(self._resident, sum(r for r, _ in pages))
            self._anonymous = max(self._anonymous, sum(r - f for r, f in pages))

    def stop(self) -> Memory:
        self._stopped.set()
        self._thread.join()
        page = os.sysconf("SC_PAGE_SIZE")
        return Memory(resident=self._resident * page, anonymous=self._anonymous * page)


def _tree(pid: int) -> list[int]:
    """Return a process and all below it; from /proc, as libraries for it look at every process of the machine."""
    found = [pid]
    for parent in found:  # grows while it is read
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, _read(children).split())
    return found


def _pages(pid: int) -> tuple[int, int]:
    """Return a process' resident pages, and those of them that a file backs; 0 when it has ended."""
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return (int(fields[1]), int(fields[2])) if fields else (0, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it ended between two looks
        return ""


def use_cores(count: int) -> list[int]:
    """Bind this process and all that it starts to the first ``count`` cores that it may use; return them."""
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise SystemExit(f"--workers: read {count}, but this process may use {len(allowed)} cores; lower it")
    os.sched_setaffinity(0, allowed[:count])
    return allowed[:count]


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of the packages, "missing" for what is not installed."""
    return {"python": platform.python_version()} | {package: _version(package) for package in packages}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def require(package: str, requirement: str) -> None:
    """End with the command that installs a package which only a benchmark needs, when it is missing."""
    if _version(package) == "missing":
        raise SystemExit(
            f"this benchmark compares with {package}, which is not installed, as nothing else here needs it; "
            f"install it: pip install '{requirement}', or name the contenders to measure with --only"
        )


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout: the first column to the left, the others to the right."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
