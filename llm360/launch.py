"""One run as several processes: on this machine by torchrun's agent, or on a Ray cluster by Ray Train.

What is run is a module with ``main(argv) -> int`` that calls ``distributed.join``. Rank 0 speaks for all: the others'
output is shown only of the first rank that failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import ConfigError, LLM360Error, WorkerError
from llm360.files import read_json, write_json
from llm360.processes import RAY_ADDRESS, die_with_parent
from llm360.progress import say

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

PAUSED = 128 + signal.SIGTERM  # the exit code of a rank that was asked to end, saved and ended
GRACE_SECONDS = 3600  # to save after SIGTERM; who sent it may be less patient, and we die with the one who started us
LOST_SECONDS = 20.0  # the agent kills ranks that outlive a failed one by 30 s; a rank killed sooner failed by itself
LINES = 40  # of a failed rank's stderr


@dataclasses.dataclass(frozen=True)
class _End:
    """How a rank ended: its exit code, when (Unix seconds), and the traceback of an error that nobody caught."""

    rank: int
    code: int
    at: float
    error: str


def in_ranks() -> bool:
    """Whether this process is one of those that torchrun or Ray Train started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(module: str, argv: Sequence[str], *, ranks: int) -> int:
    """Run ``main(argv)`` of a module in ``ranks`` processes of this machine and return the exit code of all.

    All of them end with this process, however it ends. SIGTERM and SIGINT are passed on once and the ranks then have
    time to save: 143 if they did; a second signal ends them at once. After an error the code is that of the first
    rank that failed, whose words are shown. Raises WorkerError when a rank was killed, ConfigError when this machine
    has fewer GPUs than ranks.
    """
    _require_gpus(ranks)
    die_with_parent()
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        with _undisturbed():
            killed, asked = _run_agent(folder, module, argv, ranks)
        ends = [_End(**read_json(path)) for path in folder.glob("*.json")]
        failed = _first_failed(ends)
        for rank, (number, at) in killed.items():
            if failed is None or failed.at > at - LOST_SECONDS:
                raise _killed(rank, ranks, number)
        if failed is not None:
            _show(failed, folder, ranks)
            return failed.code
        return max(e.code for e in ends) if len(ends) == ranks else asked or 1


def _run_agent(
    folder: Path, module: str, argv: Sequence[str], ranks: int
) -> tuple[dict[int, tuple[int, float]], int | None]:
    """Run the ranks; return the signal and time at which some were killed, and the exit code of a signal to us."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    try:
        elastic_launch(_config(folder, ranks), sys.executable)("-m", __name__, os.getpid(), folder, module, *argv)
    except SignalException as error:
        return {}, 128 + error.sigval
    except ChildFailedError as error:  # SIGTERM is how the agent ends the others
        ends = {rank: (-f.exitcode, float(f.timestamp)) for rank, f in error.failures.items()}
        return {r: (number, at) for r, (number, at) in ends.items() if number > 0 and number != signal.SIGTERM}, None
    return {}, None


def _first_failed(ends: Sequence[_End]) -> _End | None:
    """Return the rank that failed first; rank 0 where it told an error in its own words, as others will have too."""
    failed = [e for e in ends if e.code not in (0, PAUSED)]
    return min(failed, key=lambda e: (e.rank > 0 or e.error != "", e.at), default=None)


def _config(folder: Path, ranks: int) -> LaunchConfig:
    """Return what ``torchrun --standalone`` would set; nothing is started again, since the whole run resumes."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    quiet = dict.fromkeys(range(1, ranks), Std.ALL)
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs"), redirects=quiet),
        signals_to_handle="SIGTERM,SIGINT",
        shutdown_timeout=GRACE_SECONDS,
    )


def _require_gpus(ranks: int) -> None:
    import torch

    gpus = torch.cuda.device_count()
    if 0 < gpus < ranks:
        raise ConfigError(f"{ranks} ranks and {gpus} GPUs here, expected one GPU for each rank: lower runtime.ranks")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the agent's log lines away, and put back the signal handlers that it leaves."""
    level = logging.root.manager.disable
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):  # only the main thread has handlers to put back
                signal.signal(number, handler)


def _killed(rank: int, ranks: int, number: int) -> WorkerError:
    return WorkerError(
        f"rank {rank} of {ranks} was killed by {signal.Signals(number).name}, perhaps for want of memory; whole "
        f"checkpoints are kept: free some memory or lower micro_batch_size, and run the same command again"
    )


def _show(end: _End, folder: Path, ranks: int) -> None:
    """Show what the failed rank said; what rank 0 said was heard."""
    said = ""
    if end.rank:
        (log,) = folder.glob(f"logs/*/*/{end.rank}/stderr.log")
        said = "".join(log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-LINES:])
    if said or end.error:
        say(f"rank {end.rank} of {ranks} failed:\n{said}{end.error}".rstrip())


def _as_rank(agent: str, folder: str, module: str, *argv: str) -> int:
    """Run the module as one rank, not outliving the agent, and leave word of how it ended."""
    die_with_parent()
    if os.getppid() != int(agent):  # it died before the kernel was asked
        return 1
    code, error = _run_main(module, argv)
    rank = int(os.environ["RANK"])
    write_json(Path(folder) / f"{rank}.json", dataclasses.asdict(_End(rank, code, time.time(), error)))
    return 0 if code == PAUSED else code  # to the agent any other code is a failure, for which it ends the others


def _run_main(module: str, argv: Sequence[str]) -> tuple[int, str]:
    """Return the exit code of ``main(argv)`` and the traceback of an error that it did not catch."""
    try:
        return int(importlib.import_module(module).main(list(argv))), ""
    except SystemExit as end:
        return _exit_code(end), ""
    except BaseException:
        return 1, traceback.format_exc()


def _exit_code(end: SystemExit) -> int:
    if isinstance(end.code, int):
        return end.code
    if end.code is not None:
        say(str(end.code))
    return int(end.code is not None)


def on_ray(module: str, argv: Sequence[str], *, ranks: int) -> int:
    """Run ``main(argv)`` of a module as ``ranks`` workers of the Ray cluster at RAY_ADDRESS; return 0.

    Each worker has a GPU if the cluster has one for each. All see this working directory on a shared file system.
    Raises WorkerError with the first error of a worker.
    """
    import ray
    from ray.train import RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    if not ray.is_initialized():
        ray.init(address=os.environ[RAY_ADDRESS], log_to_driver=False, logging_level="error")
    with tempfile.TemporaryDirectory(prefix=".ray-", dir=Path.cwd()) as storage:  # all nodes must see it
        trainer = TorchTrainer(
            _as_worker,
            train_loop_config={"folder": str(Path.cwd()), "module": module, "argv": list(argv)},
            scaling_config=ScalingConfig(num_workers=ranks, use_gpu=ray.cluster_resources().get("GPU", 0) >= ranks),
            run_config=RunConfig(storage_path=storage, name="run"),
        )
        try:
            trainer.fit()
        except TrainingFailedError as error:
            raise _on_ray_failed(error, ranks) from error
    return 0


def _as_worker(call: dict[str, Any]) -> None:
    """Run the module in a process that Ray Train made a rank; whatever ends it early is raised as an error."""
    os.chdir(call["folder"])
    sys.path.insert(0, call["folder"])
    try:
        code = int(importlib.import_module(call["module"]).main(call["argv"]))
    except SystemExit as end:
        if isinstance(end.__cause__, LLM360Error):  # a stage has made a line and an exit code of it
            raise end.__cause__ from None
        code = _exit_code(end)
    if code:
        raise WorkerError(f"{call['module']} ended with exit code {code}; its words are in that worker's log on Ray")


def _on_ray_failed(error: Exception, ranks: int) -> WorkerError:
    """Return one error for all workers: what one of them raised on purpose, else the first one, shown as Ray tells it.

    A worker whose peer is gone fails in its own way.
    """
    failures: Mapping[int, BaseException] = getattr(error, "worker_failures", {})
    ours = {rank: e for rank, e in failures.items() if isinstance(e, LLM360Error)}
    for rank, e in (ours or failures).items():
        if not ours:
            say(str(error).rstrip())
        return WorkerError(f"rank {rank} of {ranks} on Ray: {type(e).__name__}: {e}")
    return WorkerError(f"Ray lost the run ({str(error).splitlines()[0]}); run the same command again")


if __name__ == "__main__":
    sys.exit(_as_rank(*sys.argv[1:]))
