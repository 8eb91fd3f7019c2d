"""The look of every figure: calm, one colour per suite, tokens on the x axis, and equal bytes from equal rows."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A page may replace these three by its own colours; nothing else in a figure has exactly these values.
INK, RULE, PAPER = "#2a2f37", "#dcdfe4", "#fffffe"
MUTED = "#8a929e"
AMBER, TEAL, SLATE = "#d18b0a", "#12898b", "#5f7fae"
KINDS = {  # a colour per source kind, told apart on white and on black
    "arxiv": "#b5484b",
    "book": "#8a6d3b",
    "c4": "#5f7fae",
    "refinedweb": "#3f9a6d",
    "stackexchange": "#a05fae",
    "starcoderdata": "#12898b",
    "wikipedia": "#d18b0a",
}
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "font.family": "DejaVu Sans",  # ships with matplotlib, so its outlines are the same everywhere
    "font.size": 9,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "llm360",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Use this look, and no personal settings, for what is drawn and saved inside the block."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def figure(rows: int, columns: int, *, width: float, height: float, **grid: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``width`` x ``height`` inches and its axes, row by row."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    fig = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08))
    axes = fig.subplots(rows, columns, squeeze=False, **grid)
    return fig, list(axes.flat)


def svg(fig: Figure) -> bytes:
    """Return a figure as SVG without date or version of its maker."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def colour(suite: str) -> str:
    """Return a suite's colour: amber for Amber and what was made from it, teal for Crystal, slate for others."""
    return AMBER if suite.startswith("amber") else TEAL if suite.startswith("crystal") else SLATE


def shades(suite: str, count: int) -> list[Any]:
    """Return ``count`` colours from a pale grey to the suite's own, for checkpoints in order."""
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("shades", ["#c3c8d0", colour(suite)])
    return [ramp((i + 1) / count) for i in range(count)]


def count_label(value: float) -> str:
    """Return a count as text of three digits: 1500000 is "1.5 M"."""
    if not value:
        return "0"
    rounded = float(f"{value:.3g}")
    power = min(max(int(math.log10(abs(rounded)) // 3), 0), 4)
    return f"{rounded / 1000**power:g} {('', 'k', 'M', 'B', 'T')[power]}".strip()


def tokens_axis(axes: Axes) -> None:
    """Label the x axis in tokens."""
    axes.xaxis.set_major_formatter(lambda value, _: count_label(value))
    axes.set_xlabel("tokens seen")
    axes.margins(x=0.01)
    axes.set_xlim(left=0)


def log_axis(axes: Axes) -> None:
    """Make the y axis logarithmic, labelled with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def phase_lines(axes: Axes, frame: pl.DataFrame, *, named: bool) -> None:
    """Draw a dashed line where each phase but the first begins (columns phase, phase_start); ``named`` labels them."""
    starts = frame.select("phase", "phase_start").unique().sort("phase_start").rows()
    for phase, start in starts if len(starts) > 1 else ():
        if start:
            axes.axvline(start, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        if named:
            place: dict[str, Any] = {
                "xytext": (3, 1),
                "textcoords": "offset points",
                "va": "bottom",
                "fontsize": 8,
                "color": MUTED,
            }
            axes.annotate(phase, (start, 1), xycoords=axes.get_xaxis_transform(), annotation_clip=False, **place)


def end_labels(axes: Axes, ends: dict[str, tuple[float, float, Any]], *, gap: float) -> None:
    """Write each line's name right of its last point (x, y, colour), moved apart by ``gap`` of the axis' height."""
    low, high = axes.get_ylim()
    y = -math.inf
    for name, (x, at, paint) in sorted(ends.items(), key=lambda item: (item[1][1], item[0])):
        y = max((at - low) / (high - low), y + gap)
        spot: dict[str, Any] = {
            "xytext": (6, 0),
            "textcoords": "offset points",
            "va": "center",
            "fontsize": 8.5,
            "color": paint,
        }
        axes.annotate(name, (x, low + y * (high - low)), annotation_clip=False, **spot)
