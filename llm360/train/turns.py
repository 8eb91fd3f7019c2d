"""Which chunk is read next: the main line, then what was deferred, then the first chunks again.

This is Amber's story (paper, section 4.1.5): four chunks gave NaN, were skipped and still failed when moved later;
the learning-rate schedule was completed by repeating the first four chunks. Here it is a rule that anyone can follow:
where a phase stands is in each checkpoint, so the next chunk is a function of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from llm360.checkpoint import Failure, TrainState
from llm360.errors import TrainingError

Kind = Literal["first", "retry", "repeat"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """A chunk's turn to be read: for the first time, once more after it failed, or again to complete the schedule."""

    chunk: int
    kind: Kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a phase over chunks ``first`` to ``first + count - 1`` stands.

    finished counts passes. deferred are the chunks that failed, in order, for good or not; skipped are those of them
    that failed again.
    """

    first: int
    count: int
    finished: int
    deferred: tuple[Failure, ...]
    skipped: tuple[Failure, ...]

    def next(self) -> Turn | None:
        """Return the turn that comes now, None when the phase has finished as many passes as it has chunks."""
        if self.finished == self.count:
            return None
        read = self.finished + len(self.deferred)
        if read < self.count:
            return Turn(chunk=self.first + read, kind="first")
        later = read - self.count + len(self.skipped)  # turns taken after the main line
        if later < len(self.deferred):
            return Turn(chunk=self.deferred[later].chunk, kind="retry")
        return Turn(chunk=self._good()[later - len(self.deferred)], kind="repeat")

    def _good(self) -> list[int]:
        """Return the chunks that may be repeated, as often as it takes."""
        bad = {f.chunk for f in self.skipped}
        good = [c for c in range(self.first, self.first + self.count) if c not in bad]
        if not good:
            raise TrainingError(
                f"no chunk of {self.first} to {self.first + self.count - 1} gives a finite loss; "
                f"look at the rates and at the data, nothing was trained"
            )
        return good * self.count

    def failed(self, turn: Turn, step: int) -> Progress:
        """Return where the phase stands after a turn that was not finite; raises TrainingError for a repeated chunk."""
        failure = Failure(chunk=turn.chunk, step=step)
        if turn.kind == "first":
            return dataclasses.replace(self, deferred=(*self.deferred, failure))
        if turn.kind == "retry":
            return dataclasses.replace(self, skipped=(*self.skipped, failure))
        raise TrainingError(
            f"step {step}: chunk {turn.chunk}, repeated to complete the schedule, is not finite now, though it was; "
            f"the last checkpoint is whole: lower the rate, then run again"
        )

    def until(self, state: TrainState) -> Iterator[tuple[Turn, Failure | None]]:
        """Yield the turns from here to the one that was finished before ``state`` was saved, each with its failure."""
        progress, failed = self, {"first": state.deferred, "retry": state.skipped, "repeat": ()}
        known = {"first": len(self.deferred), "retry": len(self.skipped), "repeat": 0}
        while turn := progress.next():
            failure = next(iter(failed[turn.kind][known[turn.kind] :]), None)
            yield turn, failure
            if failure is None:
                return
            known[turn.kind] += 1
            progress = progress.failed(turn, failure.step)
