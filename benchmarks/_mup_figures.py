"""The figures of benchmarks.mup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._small import GREY, RED, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_coordinates(sizes: dict[str, dict[str, list[Any]]], widths: Sequence[int], shown: dict[str, str]) -> None:
    """Draw size over width, a line per step from grey to amber: a row per parametrization, a column per activation.

    sizes: by parametrization and activation, a list of steps for each width; shown: titles of activations.
    """
    from analyses.common.plot import figure, log_axis, shades, style

    steps = len(sizes["muP"]["logits"][0]) - 1
    with style():
        fig, axes = figure(2, len(shown), width=8.2, height=4.6, sharex=True, sharey="col")
        cells = [(kind, name) for kind in sizes for name in shown]
        colours = shades("amber", steps + 1)
        for axis, (kind, name) in zip(axes, cells, strict=True):
            for step, colour in enumerate(colours):
                axis.plot(widths, [each[step] for each in sizes[kind][name]], color=colour)
            axis.set_title(f"{kind}: {shown[name]}")
            log_axis(axis)
            _widths_axis(axis, widths)
        for axis in axes[-len(shown) :]:
            axis.set_xlabel("width")
        axes[0].set_ylabel("mean absolute value")
        axes[len(shown)].set_ylabel("mean absolute value")
        fig.legend(
            handles=[axes[0].lines[0], axes[0].lines[-1]],
            labels=["before the first step", f"after {steps} steps"],
            loc="outside lower center",
            ncols=2,
        )
        save_figure(fig, "mup_coordinates")


def _widths_axis(axis: Axes, widths: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(widths, [str(width) for width in widths])
    axis.minorticks_off()


def draw_transfer(curves: dict[tuple[str, int], list[tuple[float, float]]], rates: Sequence[float]) -> None:
    """Draw loss over rate, a panel per parametrization, a line per width; a filled point is the best rate.

    curves: by parametrization and width, mean and standard error for each rate.
    """
    from analyses.common.plot import figure, style

    with style():
        fig, axes = figure(1, 2, width=8.2, height=3.0, sharex=True, sharey=True)
        for axis, kind in zip(axes, dict.fromkeys(kind for kind, _ in curves), strict=True):
            ours = [(width, curve) for (name, width), curve in curves.items() if name == kind]
            for (width, curve), colour in zip(ours, (GREY, RED), strict=True):
                means, errors = np.array(curve).T
                axis.errorbar(rates, means, errors, color=colour, marker="o", mfc="none", ms=4, label=f"width {width}")
                axis.plot(rates[means.argmin()], means.min(), "o", color=colour, markersize=7)
            axis.set_xscale("log", base=2)
            axis.set_title(kind)
            axis.set_xlabel("base learning rate")
        lowest = min(mean for curve in curves.values() for mean, _ in curve)
        axes[0].set_ylim(lowest - 0.05, lowest + 0.8)  # rates far too low would flatten the rest
        axes[0].set_ylabel("held-out loss, nats per byte")
        axes[0].legend(loc="upper center")
        save_figure(fig, "mup_transfer")
