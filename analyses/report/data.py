"""What the report says of the data beside its figures: tokens by kind, chi-square, duplicates, items seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from llm360.errors import IntegrityError

LISTED = 12  # items and sources that the page names; all are in the tables
COLUMNS = {
    "tokens": ("suite", "phase", "kind", "content", "rows", "tokens", "share", "weight"),
    "sources": ("suite", "phase", "kind", "source", "tokens"),
    "chi_square": ("suite", "phase", "chunks", "kinds", "statistic", "degrees", "p"),
    "duplicates": ("suite", "kind", "documents", "empty", "exact", "near"),
    "contamination": ("suite", "task", "items", "checked", "too_short", "any", "hit", "largest_share"),
    "contaminated": ("suite", "task", "item", "share", "chunk", "row", "ngrams"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the page: what it shows, its heads, its cells as text; cells after the first ``names`` are numbers."""

    caption: str
    heads: list[str]
    names: int
    rows: list[list[str]]


def data_tables(folder: Path) -> list[Table]:
    """Return the tables of ``artifacts/analyses/data``; none when it was not built."""
    if not (folder / "tokens.csv").is_file():
        return []
    read = {name: _read(folder / f"{name}.csv", columns) for name, columns in COLUMNS.items()}
    return [
        _tokens(read["tokens"]),
        _chi_square(read["chi_square"]),
        _sources(read["sources"]),
        _duplicates(read["duplicates"]),
        _contamination(read["contamination"]),
        *_contaminated(read["contaminated"]),
    ]


def _read(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        return pl.read_csv(path, infer_schema_length=None).select(columns)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise IntegrityError(
            f"{path}: no table of the data checks ({str(error).splitlines()[0]}), expected the columns "
            f"{', '.join(columns)}; delete it and rebuild it: dvc repro analyze@data"
        ) from error


def _tokens(frame: pl.DataFrame) -> Table:
    return Table(
        caption="Tokens by kind of text, beside the share that the mixture asks for. Tokens are those stored, sequence "
        "length and one more of each row; registry.sources_seen counts targets, sequence length of each row that "
        "was trained on. Code is told by the kind's name.",
        heads=["suite", "phase", "kind", "content", "rows", "tokens", "share", "mixture"],
        names=4,
        rows=[[*r[:4], _count(r[4]), _count(r[5]), _percent(r[6]), _percent(r[7])] for r in frame.rows()],
    )


def _chi_square(frame: pl.DataFrame) -> Table:
    return Table(
        caption="Are all chunks drawn from the mixture alike? Pearson's chi-square over kinds by chunk. A p near 0 "
        "says that chunks differ by more than chance. Phases of one chunk have no test.",
        heads=["suite", "phase", "chunks", "kinds", "chi-square", "degrees of freedom", "p"],
        names=2,
        rows=[[*r[:2], _count(r[2]), _count(r[3]), f"{r[4]:.1f}", _count(r[5]), f"{r[6]:.3f}"] for r in frame.rows()],
    )


def _sources(frame: pl.DataFrame) -> Table:
    total = frame.group_by("suite", "source", maintain_order=True).agg(pl.col("tokens").sum())
    share = pl.col("tokens") / pl.col("tokens").sum().over("suite")
    largest = total.with_columns(share=share).sort("suite", -pl.col("tokens"), "source")
    shown = largest.group_by("suite", maintain_order=True).head(LISTED)
    return Table(
        caption=f"Stored tokens by source, of each suite the {LISTED} largest: what a kind's text is from, such as a "
        "package; a corpus is the one source of its kind. End tokens are counted with their documents.",
        heads=["suite", "source", "tokens", "share"],
        names=2,
        rows=[[suite, source or "", _count(n), _percent(part)] for suite, source, n, part in shown.rows()],
    )


def _duplicates(frame: pl.DataFrame) -> Table:
    return Table(
        caption="Documents of the suite's kinds that double one that is kept: by their hash (exact), or by MinHash "
        "of their words (near, beside the exact ones). They are counted, not removed.",
        heads=["suite", "kind", "documents", "without a word", "exact", "near"],
        names=2,
        rows=[[*r[:2], *map(_count, r[2:])] for r in frame.rows()],
    )


def _contamination(frame: pl.DataFrame) -> Table:
    return Table(
        caption="Evaluation items in the training rows. Too short: fewer words than one n-gram has, so not checked.",
        heads=["suite", "task", "items", "checked", "too short", "any n-gram found", "hit", "largest share"],
        names=2,
        rows=[[*r[:2], *map(_count, r[2:7]), _percent(r[7])] for r in frame.rows()],
    )


def _contaminated(frame: pl.DataFrame) -> Iterator[Table]:
    shown = frame.sort("share", descending=True, maintain_order=True).head(LISTED)
    if len(shown):
        yield Table(
            caption=f"Items that are hit, and the rows that have most of them; the first {len(shown)} of {len(frame)}.",
            heads=["suite", "task", "item", "share found", "chunk", "row", "n-grams in the row"],
            names=3,
            rows=[[*r[:3], _percent(r[3]), *map(str, r[4:])] for r in shown.rows()],
        )


def _count(number: int | None) -> str:
    return "\N{EN DASH}" if number is None else f"{number:,}"


def _percent(share: float | None) -> str:
    return "\N{EN DASH}" if share is None else f"{100 * share:.2f} %"
