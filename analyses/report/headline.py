"""One small table of numbers per suite: what ``dvc metrics show`` and ``dvc exp show`` print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from llm360.files import read_json

DETAIL = re.compile(r"ckpt_\d+/(?!.*\bseen/score$)|^last/(?!all$)|undefined$|rows$")  # stays in the summaries


def headline(analyses: Path, suites: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the summaries' main numbers by suite; a suite without any is left out.

    ``analyses`` is the folder of all analyses. A memorization score keeps its last checkpoint only.
    """
    merged: dict[str, float] = {}
    for path in sorted(analyses.glob("*/summary.json")):
        merged |= read_json(path)
    tables = {suite: _of_suite(suite, merged) for suite in suites}
    return {suite: table for suite, table in tables.items() if table}


def _of_suite(suite: str, merged: Mapping[str, float]) -> dict[str, float]:
    own = {k.removeprefix(f"{suite}/"): v for k, v in sorted(merged.items()) if k.startswith(f"{suite}/")}
    return {_name(k): v for k, v in own.items() if not DETAIL.search(k)}


def _name(key: str) -> str:
    """Return a summary's key as a column: the words of validation say that the text was held out."""
    return {"first/all": "held_out/first", "last/all": "held_out/last"}.get(
        key, re.sub(r"ckpt_\d+/seen/", "memorized/", key)
    )
