"""Weights saved in bf16 and resumed from there, and AdamW begun anew without its moments, against ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks._ablation_runs import OPTIMIZER, Run, build, schedule, table
from benchmarks._small import GREY, RED, losses, rows, save_figure, take_step
from llm360.processes import fan_out
from llm360.progress import track
from llm360.train.optimizer import build_optimizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Floats = npt.NDArray[np.float64]
CHUNK_STEPS, CHUNKS = 4, 90  # as the mini suite: four steps a chunk
RESUMES = (90, 180, 270)  # steps before which the restarted arm loses its moments
AFTER = 20  # steps that a bump is averaged over
LENGTH, BATCH = 128, 8


def train_with_resumes(run: Run) -> dict[str, Floats]:
    """Return the loss of each step before it is taken (train), and the held-out loss after each chunk.

    held_out is after the resume there, saved is before it: they differ in the arm whose weights are rounded.
    """
    torch.set_num_threads(1)
    steps = CHUNKS * CHUNK_STEPS
    model, line = build(run.seed, length=LENGTH, layers=3), schedule(steps)
    optimizer = build_optimizer(model, OPTIMIZER)
    sizes = {"batch": BATCH, "length": LENGTH}
    held_out = list(rows(run.corpus, held_out=True, count=2, **sizes | {"batch": 32}, seed=0))
    train, saved, resumed = [], [], []
    for step, tokens in enumerate(rows(run.corpus, held_out=False, count=steps, **sizes, seed=run.seed)):
        if run.arm == "adamw_restarted" and step in RESUMES:
            optimizer.state.clear()
        train.append(take_step(model, optimizer, tokens, rate=line.learning_rate(step), params=OPTIMIZER))
        if (step + 1) % CHUNK_STEPS == 0:
            saved.append(losses(model, held_out).mean().item())
            if run.arm == "bf16_checkpoints":
                _round_weights(model)
            resumed.append(losses(model, held_out).mean().item() if run.arm == "bf16_checkpoints" else saved[-1])
    return {"train": np.array(train), "saved": np.array(saved), "held_out": np.array(resumed)}


@torch.no_grad()
def _round_weights(model: PreTrainedModel) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16())


def state_faults(corpus: Path, *, seeds: int, workers: int) -> dict[str, Any]:
    """Train all arms, print and draw what each loses, and return it."""
    arms = ("ours", "bf16_checkpoints", "adamw_restarted")
    runs = [Run(corpus=corpus, arm=arm, seed=seed) for seed in range(seeds) for arm in arms]
    found = dict(track(fan_out(train_with_resumes, runs, workers=workers), label="state", total=len(runs)))
    of_arm = {arm: [found[run] for run in runs if run.arm == arm] for arm in arms}
    gaps = {arm: _gaps(of_arm[arm], of_arm["ours"]) for arm in arms[1:]}
    bump = np.mean([gaps["adamw_restarted"]["train"][:, r + 1 : r + 1 + AFTER] for r in RESUMES], axis=0)
    rounded, restarted = gaps["bf16_checkpoints"]["held_out"], gaps["adamw_restarted"]["held_out"]
    jumps = [each["held_out"] - each["saved"] for each in of_arm["bf16_checkpoints"]]
    figures = {
        "ours: held-out loss at the end": [each["held_out"][-1] for each in of_arm["ours"]],
        "bf16_checkpoints: what rounding once adds, mean of all chunks": [each.mean() for each in jumps],
        "bf16_checkpoints: gap at the end": rounded[:, -1],
        "bf16_checkpoints: gap, mean of the last 20 chunks": rounded[:, -20:].mean(1),
        "adamw_restarted: largest gap after a resume": bump.max(1),
        f"adamw_restarted: gap, mean of {AFTER} steps after a resume": bump.mean(1),
        "adamw_restarted: gap at the end": restarted[:, -1],
    }
    draw_state(gaps)
    return table("saved in bf16, restarted without moments: nats per byte", figures)


def _gaps(arm: list[dict[str, Floats]], ours: list[dict[str, Floats]]) -> dict[str, Floats]:
    return {key: np.array([a[key] - b[key] for a, b in zip(arm, ours, strict=True)]) for key in ours[0]}


def draw_state(gaps: dict[str, dict[str, Floats]]) -> None:
    """Draw the gap of each arm over the steps, mean and standard error; dashed lines are resumes."""
    from analyses.common.plot import MUTED, figure, style

    with style():
        fig, axes = figure(1, 2, width=8.2, height=3.0)
        chunk_ends = np.arange(1, CHUNKS + 1) * CHUNK_STEPS
        _band(axes[0], chunk_ends, gaps["bf16_checkpoints"]["held_out"])
        axes[0].set_title("saved in bf16 at every chunk: held-out loss")
        _band(axes[1], np.arange(CHUNKS * CHUNK_STEPS), gaps["adamw_restarted"]["train"])
        axes[1].set_title("AdamW without its moments: training loss")
        for resume in RESUMES:
            axes[1].axvline(resume, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for axis in axes:
            axis.axhline(0, color=GREY, linewidth=1)
            axis.set_xlabel("step")
        axes[0].set_ylabel("gap to ours, nats per byte")
        save_figure(fig, "ablation_state")


def _band(axis: Any, x: Floats, values: Floats) -> None:
    mean, error = values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5
    axis.plot(x, mean, color=RED, linewidth=1.2)
    axis.fill_between(x, mean - error, mean + error, color=RED, alpha=0.25, linewidth=0)
