"""A pass over a chunk: the steps on its rows, and what happens to a chunk that is not finite."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from llm360.checkpoint import TrainState
from llm360.data.chunks import ChunkReader
from llm360.errors import TrainingError
from llm360.progress import say
from llm360.train.batches import batches, step_count
from llm360.train.faults import nan_at_forward
from llm360.train.loop import StepMetrics, train_steps
from llm360.train.params import PhaseParams
from llm360.train.record import Passed, advance, of_phase, progress_of
from llm360.train.trainer import Trainer
from llm360.train.turns import Turn


def train_pass(
    trainer: Trainer,
    params: PhaseParams,
    chunks: ChunkReader,
    *,
    state: TrainState,
    home: Path,
    earlier: Sequence[StepMetrics] = (),
    stop: Callable[[Sequence[StepMetrics]], bool],
    settle: Callable[[], None] = lambda: None,
) -> Passed:
    """Train until a chunk is finished, or ``stop``, which is told the steps taken in the chunk after each, says so.

    state: where the run stands at the start of the chunk, ``earlier`` steps before the trainer; home: the checkpoint
    of that state, to which the trainer returns from a chunk that is not finite, once ``settle`` says it is written.
    """
    while turn := progress_of(state, chunks).next():
        measured = _train_chunk(trainer, params, chunks, turn, state.phase_step, earlier, stop)
        if measured[-1].finite or params.on_nonfinite == "skip_steps":
            steps, tokens = step_count(chunks, turn.chunk, params), chunks.manifest["sequence_length"]
            after = advance(state, turn, measured, steps=steps, tokens=params.batch_size * tokens)
            return Passed(turn=turn, before=state, state=after, measured=measured)
        progress = progress_of(state, chunks).failed(turn, state.step + len(measured))
        settle()
        state = of_phase(trainer.load(home), home, params)
        state = dataclasses.replace(state, deferred=progress.deferred, skipped=progress.skipped)
        earlier = ()
        if trainer.world.leads:
            say(f"{params.folder}: chunk {turn.chunk} is not finite; back to its start, it {_fate(turn)}")
    raise TrainingError(f"{params.folder}: every chunk was read; expected one to train on: this phase has ended")


def _fate(turn: Turn) -> str:
    return "is deferred" if turn.kind == "first" else "failed again and is skipped for good"


def _train_chunk(
    trainer: Trainer,
    params: PhaseParams,
    chunks: ChunkReader,
    turn: Turn,
    phase_step: int,
    earlier: Sequence[StepMetrics],
    stop: Callable[[Sequence[StepMetrics]], bool],
) -> list[StepMetrics]:
    """Return the steps taken in a chunk: all, those until ``stop``, or those until one that ends the turn."""
    measured = list(earlier)
    begin = len(measured)
    rows = batches(chunks, turn.chunk, params, trainer.world, begin=begin)
    with _planted(trainer, params, chunks, turn.chunk, begin):
        for step in train_steps(trainer, rows, params, first_step=phase_step + begin):
            measured.append(step)
            if not step.finite and params.on_nonfinite != "skip_steps":
                break
            if stop(measured):
                break
    if not measured[-1].finite and params.on_nonfinite == "stop":
        _refuse(turn, phase_step + len(measured), measured[-1])
    return measured


def _refuse(turn: Turn, step: int, measured: StepMetrics) -> None:
    raise TrainingError(
        f"step {step} of the phase, chunk {turn.chunk}: loss {measured.loss}, gradient norm {measured.grad_norm}, "
        f"expected finite numbers; the last checkpoint is whole: lower the rate, look at this chunk's rows, or set "
        f"on_nonfinite, then run again"
    )


@contextlib.contextmanager
def _planted(trainer: Trainer, params: PhaseParams, chunks: ChunkReader, chunk: int, begin: int) -> Iterator[None]:
    """Plant a NaN in the middle of a chunk that the parameters name."""
    if chunk not in params.planted_nan:
        yield
        return
    part = trainer.world.rows(params.batch_size)
    passes = -(-(part.stop - part.start) // params.micro_batch_size)  # forward passes a step, rounded up
    with nan_at_forward(trainer.model, (step_count(chunks, chunk, params) // 2 - begin) * passes):
        yield
