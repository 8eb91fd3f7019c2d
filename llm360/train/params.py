"""The decisions of a pretraining phase, all of them required and named."""

from __future__ import annotations

import dataclasses
from typing import Literal

from llm360.config import require_positive
from llm360.train.optimizer import OptimizerParams
from llm360.train.schedule import Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
    """How a step is computed; weights, moments and gradients are fp32 in any case.

    precision: of the matrix products, bf16 by autocast. compile: TorchInductor, whose last bits differ from eager
    ones. activation_checkpointing: layers are computed again in the backward pass, for memory; same numbers.
    """

    precision: Literal["fp32", "bf16"]
    compile: bool
    activation_checkpointing: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseParams:
    """The decisions of a phase. folder is ``<suite>`` or ``<suite>/<phase>``; start is the checkpoint it goes on from.

    branch names that checkpoint where it is another suite's, such as ``amber-mini/ckpt-180``. seed orders the rows
    inside each chunk. batch_size: rows of an optimizer step over all ranks; micro_batch_size: rows of a backward
    pass on one rank. on_nonfinite: what a loss or gradient norm that is not finite does. ``stop`` ends the run;
    ``defer`` goes back to the chunk's start, reads it after all others, skips it when it fails again, and completes
    the schedule with the first chunks (Amber, paper section 4.1.5); ``skip_steps`` leaves that step's weights as they
    are. planted_nan: chunks in which a fault injector makes a loss NaN; empty but for experiments.
    """

    suite: str
    phase: str
    folder: str
    start: str
    branch: str | None
    seed: int
    batch_size: int
    micro_batch_size: int
    compute: Compute
    on_nonfinite: Literal["stop", "defer", "skip_steps"]
    planted_nan: tuple[int, ...]
    optimizer: OptimizerParams
    schedule: Schedule

    def __post_init__(self) -> None:
        require_positive(self, "batch_size", "micro_batch_size")
