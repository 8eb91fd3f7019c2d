"""Work that fans out: over processes of this machine, or over a Ray cluster where RAY_ADDRESS names one.

A task is a function of a module and its one argument; it writes files by rename and returns a small value, so it may
run anywhere that sees the same files, twice, or again after a kill.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from llm360.errors import LLM360Error, WorkerError

A = TypeVar("A")
R = TypeVar("R")
PR_SET_PDEATHSIG = 1  # prctl(2)
RAY_ADDRESS = "RAY_ADDRESS"
AHEAD = 2  # tasks a worker may have waiting: none idles, and little is lost


def die_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it, however that one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _begin_worker() -> None:
    """Bind a worker to its parent; one whose parent died while it was importing would wait for work for ever."""
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def fan_out(function: Callable[[A], R], tasks: Sequence[A], *, workers: int) -> Iterator[tuple[A, R]]:
    """Yield each task with its result, by workers of this one call; see Workers.run."""
    with Workers(workers) as pool:
        yield from pool.run(function, tasks)


class Workers:
    """Processes that share the tasks of several calls: started by the first one, ended with the block."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def prepare(self, function: Callable[[A], object], task: A) -> None:
        """Start the workers and have each do what its first task would have to wait for; waits for nothing."""
        if self.count > 1 and not os.environ.get(RAY_ADDRESS):
            with _named_when_killed():
                for _ in range(self.count):
                    self._started().submit(function, task)

    def run(self, function: Callable[[A], R], tasks: Sequence[A]) -> Iterator[tuple[A, R]]:
        """Yield each task with its result, as they end; results may depend on the task only, never on who ran it.

        One worker runs them here and in order. The first error of a task is raised, and the others are not begun.
        """
        if os.environ.get(RAY_ADDRESS):
            yield from _on_ray(function, tasks)
        elif self.count == 1 or (self._pool is None and len(tasks) < 2):
            yield from ((task, function(task)) for task in tasks)
        else:
            yield from self._on_processes(function, tasks)

    def _on_processes(self, function: Callable[[A], R], tasks: Sequence[A]) -> Iterator[tuple[A, R]]:
        pool, todo = self._started(), iter(tasks)
        with _named_when_killed():
            running = {pool.submit(function, task): task for task in itertools.islice(todo, AHEAD * self.count)}
            while running:
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
                    running.update({pool.submit(function, task): task for task in itertools.islice(todo, 1)})

    def _started(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")  # fork would copy locks that the libraries' threads hold
            self._pool = concurrent.futures.ProcessPoolExecutor(self.count, mp_context=spawn, initializer=_begin_worker)
        return self._pool


@contextlib.contextmanager
def _named_when_killed() -> Iterator[None]:
    try:
        yield
    except concurrent.futures.process.BrokenProcessPool as error:
        raise WorkerError(
            "a worker process was killed, perhaps for want of memory; finished files are kept: free some memory or "
            "lower runtime.workers, and run the same command again"
        ) from error


def _on_ray(function: Callable[[A], R], tasks: Sequence[A]) -> Iterator[tuple[A, R]]:
    import ray

    if not ray.is_initialized():
        ray.init(address=os.environ[RAY_ADDRESS], log_to_driver=False, logging_level="error")
    remote: Any = ray.remote(_call)
    room = max(1, int(ray.cluster_resources().get("CPU", 1))) * AHEAD
    todo = iter(tasks)
    running = {remote.remote(function, task): task for task in itertools.islice(todo, room)}
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            yield running.pop(reference), _value(reference)
            running.update({remote.remote(function, task): task for task in itertools.islice(todo, 1)})


def _call(function: Callable[[A], R], task: A) -> R:
    return function(task)


def _value(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # raise what the task raised, not what carried it here
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, LLM360Error) else error) from None
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"a Ray worker was lost ({str(error).splitlines()[0]}); run the same command again"
        ) from error
