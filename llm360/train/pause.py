"""A polite end: SIGTERM or SIGINT lets the step that runs finish, and the state in mid-chunk is saved."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm360.errors import LLM360Error
from llm360.train.loop import StepMetrics

SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_CODE = 143  # 128 + SIGTERM, what a supervisor expects of a process that it ended
MEASURED = "measured.jsonl"
ECHO_SECONDS = 2.0  # a rank gets the signal of a whole group twice: by itself, and passed on by its launcher


class Paused(LLM360Error):
    """The run was asked to end and saved where it stands; the same command goes on from there."""


class Pause:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.asked = False
        self._since = 0.0

    def ask(self, number: int, _frame: object) -> None:
        """Note the wish; one more, not the echo of the same, ends the process at once, as without us."""
        if not self.asked:
            self.asked, self._since = True, time.monotonic()
        elif time.monotonic() - self._since > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


@contextlib.contextmanager
def pausable() -> Iterator[Pause]:
    """Listen to the signals inside the block; their former handlers come back after it.

    Only a process's main thread can listen; elsewhere (a worker of Ray) nothing is asked.
    """
    pause = Pause()
    if threading.current_thread() is not threading.main_thread():
        yield pause
        return
    former = {number: signal.signal(number, pause.ask) for number in SIGNALS}
    try:
        yield pause
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def measured_lines(measured: Sequence[StepMetrics]) -> bytes:
    """Return the steps of an unfinished chunk as lines that give them back exactly."""
    return "".join(json.dumps(dataclasses.asdict(m)) + "\n" for m in measured).encode()


def read_measured(folder: Path) -> list[StepMetrics]:
    """Return the steps that were taken in the chunk before the pause."""
    lines = (folder / MEASURED).read_text(encoding="utf-8").splitlines()
    return [StepMetrics(**json.loads(line)) for line in lines]
