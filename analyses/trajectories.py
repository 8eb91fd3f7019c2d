"""Evaluation trajectories: each task's score against tokens, with its standard error (paper, figures 4 and 6)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from analyses.common.plot import MUTED, colour, count_label, figure, phase_lines, tokens_axis
from analyses.common.sources import phase_start, tokens_seen
from llm360.errors import DataError, did_you_mean
from registry import Suite
from registry.workspace import current_workspace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTIONS = {
    "trajectories": "Score of each task against tokens, with one standard error. Dotted: what guessing would score. "
    "Dashed: a phase begins."
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """Which metric of a task is drawn, under which title, and what guessing would score."""

    title: str
    metric: str
    chance: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """tasks are evaluation tasks; suites whose checkpoints were evaluated, finetuned ones as well."""

    suites: list[str]
    tasks: dict[str, Headline]


def rows(suite: Suite, params: Params) -> list[dict[str, Any]]:
    """Return a row per evaluation result of a suite: its columns, tokens_seen, phase, phase_start, title and chance.

    title and chance are filled for headline metrics only. Raises DataError when a task was not evaluated.
    """
    found = []
    for task in params.tasks:
        for path in results(suite, task):
            for row in pl.read_parquet(path).sort("task", "metric").to_dicts():
                found.append(row | _place(suite, row["ckpt"]) | _headline(task, params.tasks[task], row))
    return found


def results(suite: Suite, task: str) -> list[Path]:
    """Return the result files of a task for a suite, by checkpoint."""
    folder = current_workspace().artifacts / "evaluation"
    here = [p.name for p in folder.glob("*") if p.is_dir()]
    if task not in here:
        raise DataError(f"{folder}: no results of {task!r}; {did_you_mean(task, here)}; evaluate it or leave it out")
    return sorted((folder / task / suite.name).glob("ckpt_*.parquet"))


def _place(suite: Suite, ckpt: int) -> dict[str, Any]:
    phase = suite.phase_of(ckpt).name
    return {"tokens_seen": tokens_seen(suite, ckpt), "phase": phase, "phase_start": phase_start(suite, ckpt)}


def _headline(task: str, headline: Headline, row: dict[str, Any]) -> dict[str, Any]:
    chosen = (row["task"], row["metric"]) == (task, headline.metric)
    return {"title": headline.title if chosen else None, "chance": headline.chance if chosen else None}


def headlines(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the headline rows in the order of suites, tasks, checkpoints."""
    return frame.filter(pl.col("title").is_not_null())


def summary(frame: pl.DataFrame) -> dict[str, float]:
    """Return the headline value of each suite's last checkpoint, per task."""
    last = headlines(frame).filter(pl.col("ckpt") == pl.col("ckpt").max().over("suite", "task"))
    return {f"{row['suite']}/{row['task']}/{row['metric']}": row["value"] for row in last.to_dicts()}


def plots(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the headline values of every checkpoint, and all metrics of all."""
    columns = ["suite", "ckpt", "tokens_seen", "task", "shots", "limit", "metric", "value", "stderr"]
    return {"trajectories": headlines(frame).select(*columns, "title", "chance"), "all_metrics": frame.select(columns)}


def figures(frame: pl.DataFrame, params: Params) -> dict[str, Figure]:
    """Return, per suite of more than one evaluated checkpoint, a panel per task."""
    parts = headlines(frame).group_by("suite", maintain_order=True)
    return {f"trajectories-{suite}": _figure(str(suite), p) for (suite,), p in parts if p["ckpt"].n_unique() > 1}


def _figure(suite: str, frame: pl.DataFrame) -> Figure:
    tasks = frame["title"].unique(maintain_order=True).to_list()
    columns = min(2, len(tasks))
    lines = -(-len(tasks) // columns)
    fig, axes = figure(lines, columns, width=3.5 * columns, height=2.4 * lines, sharex=True)
    for place, title in zip(axes, tasks, strict=False):
        _panel(place, suite, frame.filter(pl.col("title") == title).sort("tokens_seen"))
    for place in axes[:-columns]:
        place.set_xlabel("")
    for place in axes[len(tasks) :]:
        place.set_visible(False)
    return fig


def _panel(axes: Axes, suite: str, part: pl.DataFrame) -> None:
    row = part.row(0, named=True)
    error = part["stderr"].cast(pl.Float64).fill_null(0).to_numpy()
    bars: dict[str, Any] = {"fmt": "o-", "markersize": 3, "linewidth": 1.4, "elinewidth": 0.8, "color": colour(suite)}
    axes.errorbar(part["tokens_seen"], part["value"], yerr=error, **bars)
    axes.axhline(row["chance"], color=MUTED, linewidth=1, linestyle=":")
    spot: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    level = axes.get_yaxis_transform()
    axes.annotate("chance", (1, row["chance"]), xycoords=level, fontsize=8, color=MUTED, **spot)
    phase_lines(axes, part, named=False)
    tokens_axis(axes)
    axes.set(
        ylabel=row["metric"], title=f"{row['title']}, {row['shots']}-shot, {count_label(row['samples'])} questions"
    )
