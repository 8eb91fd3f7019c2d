"""Rotary positions in bf16 against fp32, in training and in the evaluation of a model trained in fp32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks._ablation_runs import OPTIMIZER, Run, build, schedule, table
from benchmarks._small import RED, losses, rows, save_figure, take_step
from llm360.processes import fan_out
from llm360.progress import track
from llm360.train.optimizer import build_optimizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Floats = npt.NDArray[np.float64]
ARMS = ("fp32", "bf16 frequencies", "bf16 angles")
WHEN = ("trained so", "trained in fp32")
POSITIONS, LENGTH, BATCH, STEPS = 2048, 128, 16, 400
PLACES = tuple(range(0, POSITIONS, LENGTH))  # where rows begin in the evaluation
LATE = POSITIONS // 2  # bf16 holds every eighth position from here


class Rotary(torch.nn.Module):
    """The rotary positions of an arm, for rows that begin at ``place``.

    In fp32 only distances count, so rows anywhere are the same task, and short ones do for long ones.
    """

    def __init__(self, exact: torch.nn.Module, arm: str) -> None:
        super().__init__()
        self.exact, self.arm, self.place = exact, arm, 0
        self.dtype = torch.bfloat16 if arm == "bf16 angles" else torch.float32
        self.frequencies = exact.inv_freq if arm == "fp32" else exact.inv_freq.bfloat16()

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin [batch, length, head size], fp32, of positions [batch, length] after ``place``."""
        if self.arm == "fp32":  # transformers' own computation
            return self.exact(x, position_ids + self.place)
        positions = (position_ids + self.place)[..., None].to(self.dtype)
        angles = (positions * self.frequencies.to(self.dtype)).float()
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


def train_rope(run: Run) -> dict[str, Floats]:
    """Train with an arm's positions; return the held-out loss of rows at each place, by the arm that evaluates."""
    torch.set_num_threads(1)
    model, line = build(run.seed, length=POSITIONS, layers=3), schedule(STEPS)
    exact = model.model.rotary_emb
    model.model.rotary_emb = rotary = Rotary(exact, run.arm)
    optimizer, places = build_optimizer(model, OPTIMIZER), np.random.default_rng(run.seed)
    sizes = {"batch": BATCH, "length": LENGTH}
    for step, tokens in enumerate(rows(run.corpus, held_out=False, count=STEPS, **sizes, seed=run.seed)):
        rotary.place = int(places.integers(POSITIONS - LENGTH + 1))
        take_step(model, optimizer, tokens, rate=line.learning_rate(step), params=OPTIMIZER)
    held_out = list(rows(run.corpus, held_out=True, count=4, **sizes, seed=0))
    evaluated = ARMS if run.arm == "fp32" else (run.arm,)
    return {arm: _by_place(model, Rotary(exact, arm), held_out) for arm in evaluated}


def _by_place(model: PreTrainedModel, rotary: Rotary, held_out: list[torch.Tensor]) -> Floats:
    model.model.rotary_emb = rotary
    found = []
    for rotary.place in PLACES:
        found.append(losses(model, held_out).mean().item())
    return np.array(found)


def rope_faults(corpus: Path, *, seeds: int, workers: int) -> dict[str, Any]:
    """Train all arms, print and draw what each loses by place, and return it."""
    runs = [Run(corpus=corpus, arm=arm, seed=seed) for seed in range(seeds) for arm in ARMS]
    found = dict(track(fan_out(train_rope, runs, workers=workers), label="rope", total=len(runs)))
    ours = {run.seed: found[run]["fp32"] for run in runs if run.arm == "fp32"}
    gaps = {
        (arm, when): np.array([found[r][arm] - ours[r.seed] for r in runs if r.arm == trained])
        for arm in ARMS[1:]
        for when, trained in zip(WHEN, (arm, "fp32"), strict=True)
    }
    figures: dict[str, Any] = {"fp32: held-out loss": [each.mean() for each in ours.values()]}
    for (arm, when), gap in gaps.items():
        name = f"{arm}, {when}"
        half = len(PLACES) // 2
        figures[f"{name}: gap, rows that begin before {LATE}"] = gap[:, :half].mean(1)
        figures[f"{name}: gap, rows that begin from {LATE}"] = gap[:, half:].mean(1)
    curves = {arm: {when: _curve(gaps[arm, when]) for when in WHEN} for arm in ARMS[1:]}
    draw_rope(curves)
    return table("rotary positions in bf16: nats per byte", figures) | {"by_place": curves}


def _curve(gap: Floats) -> dict[str, list[float]]:
    """Return the mean over the seeds at each of PLACES, and its standard error."""
    return {"mean": gap.mean(0).tolist(), "error": (gap.std(0, ddof=1) / len(gap) ** 0.5).tolist()}


def draw_rope(curves: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    """Draw the gap by the place that a row begins at, mean and standard error: frequencies left, angles right."""
    from analyses.common.plot import SLATE, figure, style

    with style():
        fig, axes = figure(1, 2, width=8.2, height=3.0, sharey=True)
        for axis, (arm, by_when) in zip(axes, curves.items(), strict=True):
            for (when, curve), colour in zip(by_when.items(), (RED, SLATE), strict=True):
                axis.errorbar(PLACES, curve["mean"], curve["error"], color=colour, marker="o", ms=3, label=when)
            axis.set_title(arm)
            axis.set_xlabel("first position of the row")
        axes[0].set_ylabel("gap to fp32, nats per byte")
        axes[0].legend()
        save_figure(fig, "ablation_rope")
