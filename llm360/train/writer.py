"""Writing beside training: one thread, one piece of work at a time, in the order given."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Writer:
    """Runs work in a background thread; the loop waits only when the work before has not ended yet.

    An error of the work is raised by the next call, so no more than one piece of work is done in vain.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._running: Future[None] | None = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._threads.shutdown(wait=True)
        if kind is None:  # an error of the block itself is the one to show
            self.wait()

    def submit(self, work: Callable[[], None]) -> None:
        """Start ``work`` once what was submitted before has ended."""
        self.wait()
        self._running = self._threads.submit(work)

    def wait(self) -> None:
        """Wait until everything submitted is done; raises its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()
