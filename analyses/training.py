"""Training curves: loss, gradient norm and learning rate of every optimizer step against tokens (paper, figure 3)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import polars as pl

import registry
from analyses.common.plot import colour, figure, log_axis, phase_lines, tokens_axis
from registry import Suite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "training": "Loss, gradient norm and learning rate against tokens: every optimizer step (pale) and the mean of "
    "each chunk (strong). The loss is the mean over the global batch, the norm is taken before clipping."
}
CURVES = {"loss": "loss (nats per token)", "grad_norm": "gradient norm", "learning_rate": "learning rate"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """suites are pretrained ones of this workspace."""

    suites: list[str]


def rows(suite: Suite, params: Params) -> list[dict[str, Any]]:
    """Return a row per optimizer step: the log's columns, and phase_start, the tokens seen when its phase began."""
    log = registry.load_metrics(suite.name)
    ends = log.group_by("phase").agg(pl.col("tokens_seen").max(), pl.col("chunk").min()).sort("chunk")
    starts = ends.select("phase", phase_start=pl.col("tokens_seen").shift(1, fill_value=0))
    return log.join(starts, on="phase", how="left", maintain_order="left").to_dicts()


def by_chunk(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the mean of each curve over each chunk, the tokens seen at its end and, on average, in it (middle)."""
    tokens = pl.col("tokens_seen")
    means = [tokens.max(), tokens.mean().alias("middle"), *(pl.col(c).mean() for c in CURVES)]
    return frame.group_by("suite", "phase", "phase_start", "chunk").agg(*means).sort("suite", "chunk")


def summary(frame: pl.DataFrame) -> dict[str, float]:
    """Return, per suite: steps, tokens, the first step's loss, the last chunk's mean loss, the largest norm."""
    numbers: dict[str, float] = {}
    for (suite,), part in frame.sort("suite", "step").group_by("suite", maintain_order=True):
        numbers |= {
            f"{suite}/steps": part["step"][-1],
            f"{suite}/tokens": part["tokens_seen"][-1],
            f"{suite}/loss/first": part["loss"][0],
            f"{suite}/loss/last": by_chunk(part)["loss"][-1],
            f"{suite}/grad_norm/largest": float(part["grad_norm"].max()),  # type: ignore[arg-type]
        }
    return numbers


def plots(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the curves, a row per chunk."""
    return {"training": by_chunk(frame).drop("phase_start", "middle")}


def figures(frame: pl.DataFrame, params: Params) -> dict[str, Figure]:
    """Return the three curves of each suite."""
    parts = frame.group_by("suite", maintain_order=True)
    return {f"training-{suite}": _figure(str(suite), part) for (suite,), part in parts}


def _figure(suite: str, frame: pl.DataFrame) -> Figure:
    heights = {"height_ratios": [1.5, 1, 0.7]}
    fig, axes = figure(3, 1, width=6.6, height=6.0, sharex=True, gridspec_kw=heights)
    means = by_chunk(frame)
    for place, (column, label) in zip(axes, CURVES.items(), strict=True):
        pale: dict[str, Any] = {"alpha": 0.35, "linewidth": 0.8} if column != "learning_rate" else {}
        place.plot(frame["tokens_seen"], frame[column], color=colour(suite), **pale)
        if pale:
            place.plot(means["middle"], means[column], color=colour(suite))
        place.set_ylabel(label)
        phase_lines(place, frame, named=place is axes[0])
        tokens_axis(place)
        place.label_outer()
    log_axis(axes[1])
    axes[2].ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    return fig
