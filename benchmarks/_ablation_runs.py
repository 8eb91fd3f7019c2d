"""What the ablations share: the model, its optimizer and rates, and a table of pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._measure import show
from benchmarks._small import VOCAB_SIZE, mean_and_error
from llm360.model.build import build_model
from llm360.train.optimizer import OptimizerParams
from llm360.train.schedule import Schedule

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Amber's optimizer, and the rates of amber-mini.
OPTIMIZER = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
PEAK, END, WARMUP_STEPS = 3e-3, 3e-4, 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One model to train: an arm, and the seed of its weights and data."""

    corpus: Path
    arm: str
    seed: int


def build(seed: int, *, length: int, layers: int) -> PreTrainedModel:
    """Return a small Amber."""
    sizes = {"hidden_size": 64, "intermediate_size": 172, "layers": layers, "heads": 2, "vocab_size": VOCAB_SIZE}
    config = sizes | {"sequence_length": length, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "init_std": 0.02}
    return build_model("amber", config, seed=seed)


def schedule(steps: int) -> Schedule:
    """Return the learning rate over ``steps`` steps."""
    return Schedule(kind="cosine", peak=PEAK, end=END, warmup_steps=WARMUP_STEPS, total_steps=steps, begin=0)


def table(title: str, figures: dict[str, Iterable[float]]) -> dict[str, Any]:
    """Print mean and standard error of each figure, whose values are one of each seed, and return them."""
    found = {name: mean_and_error(list(values)) for name, values in figures.items()}
    show(title, ["", "mean", "standard error"], [[n, f"{m:+.5f}", f"{e:.5f}"] for n, (m, e) in found.items()])
    return found
