"""What is shown of a run while it goes: a bar or a line now and then, and the trackers, after each step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from llm360.checkpoint import TrainState
from llm360.progress import counted
from llm360.trackers import Tracker
from llm360.train.batches import step_count
from llm360.train.loop import StepMetrics
from llm360.train.record import Recorder

Show = Callable[[TrainState, Sequence[StepMetrics]], None]


@contextlib.contextmanager
def live(
    recorder: Recorder, state: TrainState, earlier: Sequence[StepMetrics], trackers: Sequence[Tracker] | None
) -> Iterator[Show]:
    """Yield what shows the last step, given the state at the chunk's start and the steps since; None: show nothing."""
    if trackers is None:
        yield lambda _state, _measured: None
        return
    chunks, params = recorder.chunks, recorder.params
    first, count = chunks.manifest["first_chunk"], chunks.manifest["chunks"]
    total = sum(step_count(chunks, chunk, params) for chunk in range(first, first + count))
    with counted(label=f"pretrain {params.folder}", total=total, done=state.phase_step + len(earlier)) as progress:

        def show(begun: TrainState, measured: Sequence[StepMetrics]) -> None:
            step, taken = measured[-1], len(measured)
            progress(begun.phase_step + taken, f"steps, checkpoint {begun.chunks_seen}, loss {step.loss:.3f}")
            for tracker in trackers:
                tracker.log(begun.step + taken, _numbers(recorder, step))

        yield show


def _numbers(recorder: Recorder, step: StepMetrics) -> dict[str, float | None]:
    rate = recorder.params.batch_size * recorder.chunks.manifest["sequence_length"] / step.seconds
    known = {"loss": step.loss, "grad_norm": step.grad_norm, "learning_rate": step.learning_rate}
    return {**known, "tokens_per_second": rate, "mfu": recorder.meter.mfu(rate) if recorder.meter else None}
