"""The figures of the data checks, each of one suite's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analyses.common import data_tables
from analyses.common.plot import INK, KINDS, colour, figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sources(frame: pl.DataFrame) -> Figure:
    """Return the share of each kind in every chunk, stacked, with the mixture's shares of each phase as lines."""
    every = data_tables.table(frame, "chunk")
    kinds = every.group_by("kind").agg(pl.col("rows").sum()).sort("rows", "kind", descending=[True, False])["kind"]
    fig, (axes,) = figure(1, 1, width=7, height=3)
    wide = every.pivot("kind", index="chunk", values="rows", aggregate_function="sum").fill_null(0).sort("chunk")
    counts = wide.select(kinds.to_list()).to_numpy().T
    edges = np.append(wide["chunk"], wide["chunk"][-1] + 1)
    shares = np.concatenate([counts, counts[:, -1:]], axis=1)
    paints = [_paint(kind, i) for i, kind in enumerate(kinds)]
    axes.stackplot(
        edges, shares / shares.sum(axis=0), step="post", labels=kinds, colors=paints, linewidth=0, alpha=0.85
    )
    for _, phase in data_tables.tokens(frame).group_by("phase", maintain_order=True):
        _mixture(axes, phase, every, kinds.to_list())
    axes.set(xlabel="chunk", ylabel="share of rows", xlim=(edges[0], edges[-1]), ylim=(0, 1))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def _paint(kind: str, number: int) -> Any:
    import matplotlib

    return KINDS.get(kind) or matplotlib.colormaps["tab20"](number % 20)


def _mixture(axes: Axes, phase: pl.DataFrame, every: pl.DataFrame, kinds: list[str]) -> None:
    """Draw the cumulated shares of a phase's mixture; where it has no weights, those of its tokens."""
    chunks = every.filter(pl.col("phase") == phase["phase"][0])["chunk"]
    given = dict(phase.select("kind", pl.coalesce("weight", "share")).rows())
    heights = np.cumsum([given.get(kind, 0.0) for kind in kinds])[:-1]
    first, last = int(chunks.min()), int(chunks.max()) + 1  # type: ignore[arg-type]
    axes.hlines(heights, first, last, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if first > int(every["chunk"].min()):  # type: ignore[arg-type]
        axes.axvline(first, color=INK, linewidth=0.9)


def contamination(frame: pl.DataFrame) -> Figure:
    """Return a bar per task: items with any n-gram in the rows, and items that are hit, of those checked."""
    tasks = data_tables.contamination(frame)
    suite = str(tasks["suite"][0]) if len(tasks) else ""
    fig, (axes,) = figure(1, 1, width=7, height=0.9 + 0.45 * len(tasks))
    places, checked = np.arange(len(tasks))[::-1], np.maximum(tasks["checked"].to_numpy(), 1)
    some, hit = 100 * tasks["any"].to_numpy() / checked, 100 * tasks["hit"].to_numpy() / checked
    axes.barh(places, some, height=0.62, color=shades(suite, 4)[0])
    axes.barh(places, hit, height=0.62, color=colour(suite))
    for place, end, row in zip(places, some, tasks.to_dicts(), strict=True):
        text = f"{row['hit']:,} hit, {row['any']:,} with any, of {row['checked']:,}"
        axes.annotate(
            text, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5, color=INK
        )
    axes.set_yticks(places, tasks["task"].to_list())
    axes.set(xlabel="items, % of those checked", xlim=(0, max(1.0, 1.6 * float(some.max(initial=0)))))
    axes.grid(axis="y", visible=False)
    return fig
