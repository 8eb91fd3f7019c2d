"""Learning rate as a pure function of the step within a phase."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from llm360.config import require_positive
from llm360.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Linear warm-up from 0 to peak over ``warmup_steps``, then cosine or linear to ``end`` at ``total_steps``.

    Amber: cosine 3e-4 to 3e-5, 2,000 warm-up steps of 274,320 (paper, table 3). CrystalCoder: linear lines
    (its params.yaml); phase 1 stops at 79,721 steps of a line that was laid out for 294,423. The phase begins at step
    ``begin`` of the line: 0, or more where a branch goes on along the line of its base.
    """

    kind: Literal["cosine", "linear"]
    peak: float
    end: float
    warmup_steps: int
    total_steps: int
    begin: int

    def __post_init__(self) -> None:
        require_positive(self, "peak", "total_steps")
        if min(self.warmup_steps, self.end, self.begin) < 0:
            read = f"warmup_steps {self.warmup_steps}, end {self.end}, begin {self.begin}"
            raise ConfigError(f"{read}: expected no negative number")

    def learning_rate(self, step: int) -> float:
        """Return the rate of the phase's step ``step``, counted from 0; it stays at ``end`` after the line's last."""
        step += self.begin
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        done = min((step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1), 1.0)
        left = 0.5 * (1 + math.cos(math.pi * done)) if self.kind == "cosine" else 1 - done
        return self.end + (self.peak - self.end) * left
