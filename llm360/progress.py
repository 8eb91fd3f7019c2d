"""Progress of long work: a bar on a terminal, plain lines in a log. Words go to stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
LOG_SECONDS = 10.0


def say(text: str) -> None:
    """Print one line to stderr."""
    print(text, file=sys.stderr, flush=True)


def track(items: Iterable[T], *, label: str, total: int, done: int = 0) -> Iterator[T]:
    """Yield ``items`` and show how many of ``total`` are done, of which ``done`` before this run."""
    with counted(label=label, total=total, done=done) as show:
        for count, item in enumerate(items, start=done + 1):
            yield item
            show(count, "")


@contextlib.contextmanager
def counted(*, label: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that shows how many of ``total`` are done, with a note; call it as often as you like."""
    with (_bar if sys.stderr.isatty() else _lines)(label, total, done) as show:
        yield show


@contextlib.contextmanager
def _bar(label: str, total: int, done: int) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(label, total=total, completed=done)
        yield lambda count, note: progress.update(task, completed=count, description=f"{label} {note}".rstrip())


@contextlib.contextmanager
def _lines(label: str, total: int, done: int) -> Iterator[Callable[[int, str], None]]:
    started = last = time.monotonic()

    def show(count: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LOG_SECONDS or count == total:
            rate = max(count - done, 0) / max(now - started, 1e-9)
            left = f"{(total - count) / rate:.0f} s left" if rate else "time left unknown"
            say(f"{label}: {count}/{total} ({rate:.1f}/s, {left}){f' {note}' if note else ''}")
            last = now

    yield show
