"""The report as one HTML file: figures inline, no script, nothing fetched, equal bytes from equal artifacts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from analyses.common.plot import INK, PAPER, RULE, colour, count_label
from analyses.report.gather import Figure, Report

TEMPLATE = Path(__file__).parent / "page.html.j2"
PROLOG = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
VIEW = re.compile(r'viewBox="0 0 ([0-9.]+) ')
IDS = re.compile(r'(\bid="|url\(#|href="#)')


def render(report: Report) -> str:
    """Return the page."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"colour": colour, "inline": inline, "counted": counted}
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(report=report, **_totals(report))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, "1 chunk" or "2 chunks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _totals(report: Report) -> dict[str, Any]:
    trained = [s for s in report.suites if s.base is None]
    return {
        "trained": " and ".join(s.name for s in trained),
        "checkpoints": sum(len(s.checkpoints) for s in trained),
        "tokens": count_label(sum(s.checkpoints[-1]["tokens_seen"] for s in trained)),
        "megabytes": sum(s["bytes"] for s in report.sources) / 1e6,
        "documents": sum(s["documents"] for s in report.sources),
        "example": report.suites[0] if report.suites else None,
    }


def inline(figure: Figure) -> Any:
    """Return a figure's SVG to stand inside the page: ids of its own, the page's colours, a label for readers."""
    from markupsafe import Markup, escape

    text = PROLOG.sub("", figure.path.read_text(encoding="utf-8"))
    text = IDS.sub(rf"\g<1>{figure.name}-", METADATA.sub("", text))
    for paint, variable in ((INK, "ink"), (RULE, "rule"), (PAPER, "paper")):
        text = text.replace(paint, f"var(--{variable})")
    label = f'<svg role="img" aria-label="{escape(figure.caption)}" style="{_width(text)}"'
    return Markup(text.replace("<svg", label, 1).strip())


def _width(text: str) -> str:
    """Return the width up to which a figure grows; on a narrow screen it shrinks with its card."""
    found = VIEW.search(text)
    points = float(found[1]) if found else 480.0
    return f"max-width: {points * 1.65:.0f}px"
