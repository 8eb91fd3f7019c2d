"""Progress of long work: a bar on a terminal, plain lines in a log. Words go to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
LOG_SECONDS = 10.0


def say(text: str) -> None:
    """Print one line to stderr."""
    print(text, file=sys.stderr, flush=True)


def track(items: Iterable[T], *, label: str, total: int, done: int = 0) -> Iterator[T]:
    """Yield ``items`` and show how many of ``total`` are done, of which ``done`` before this run."""
    if sys.stderr.isatty():
        yield from _bar(items, label, total, done)
    else:
        yield from _lines(items, label, total, done)


def _bar(items: Iterable[T], label: str, total: int, done: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(task)


def _lines(items: Iterable[T], label: str, total: int, done: int) -> Iterator[T]:
    started = last = time.monotonic()
    count = done
    for item in items:
        yield item
        count += 1
        now = time.monotonic()
        if now - last >= LOG_SECONDS or count == total:
            rate = (count - done) / max(now - started, 1e-9)
            say(f"{label}: {count}/{total} ({rate:.1f}/s, {(total - count) / rate:.0f} s left)")
            last = now
