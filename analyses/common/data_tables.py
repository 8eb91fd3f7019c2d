"""The tables that the data checks' rows make: one frame holds the rows of all checks, told apart by ``check``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from analyses.common.statistics import chi_square, chi_square_p

CODE = ("starcoder", "github", "python", "html", "javascript", "css")  # kinds of code begin with one of these
TEXT, NUMBER, PART, FLAG = pl.String, pl.Int64, pl.Float64, pl.Boolean
SCHEMAS: dict[str, dict[str, Any]] = {  # columns of each check, after suite
    "mixture": {"phase": TEXT, "kind": TEXT, "rows": NUMBER, "tokens": NUMBER, "weight": PART},
    "source": {"phase": TEXT, "kind": TEXT, "source": TEXT, "tokens": NUMBER},
    "chunk": {"phase": TEXT, "chunk": NUMBER, "kind": TEXT, "rows": NUMBER},
    "documents": {"kind": TEXT, "documents": NUMBER, "empty": NUMBER},
    "cluster": {"how": TEXT, "cluster": TEXT, "document": TEXT, "kind": TEXT, "source": TEXT}
    | {"similarity": PART, "kept": FLAG},
    "item": {"task": TEXT, "item": TEXT, "words": NUMBER, "ngrams": NUMBER, "found": NUMBER, "share": PART}
    | {"hit": FLAG, "state": TEXT},
    "row": {"task": TEXT, "item": TEXT, "chunk": NUMBER, "row": NUMBER, "ngrams": NUMBER},
}


def table(frame: pl.DataFrame, check: str) -> pl.DataFrame:
    """Return the rows of one check with their columns, also when there are none."""
    schema = {"suite": TEXT, **SCHEMAS[check]}
    have = [pl.col(c).cast(t) if c in frame.columns else pl.lit(None, t).alias(c) for c, t in schema.items()]
    return frame.filter(pl.col("check") == check).select(have)


def tokens(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows, tokens and their share of the phase by kind, beside the mixture's share; code or text."""
    code = pl.any_horizontal([pl.col("kind").str.starts_with(word) for word in CODE])
    phase = ("suite", "phase")
    return table(frame, "mixture").with_columns(
        share=pl.col("tokens") / pl.col("tokens").sum().over(phase),
        weight=pl.col("weight") / pl.col("weight").sum().over(phase),
        content=pl.when(code).then(pl.lit("code")).otherwise(pl.lit("text")),
    )


def code_share(frame: pl.DataFrame) -> dict[str, float]:
    """Return the share of a suite's tokens that are code, by suite."""
    every = tokens(frame).group_by("suite", maintain_order=True)
    share = pl.col("tokens").filter(pl.col("content") == "code").sum() / pl.col("tokens").sum()
    return dict(every.agg(share).rows())


def chi_squares(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the chi-square test of kinds by chunk for each phase, and for a suite of several phases ``all``."""
    schema = {"suite": TEXT, "phase": TEXT, "chunks": NUMBER, "kinds": NUMBER, "statistic": PART, "degrees": NUMBER}
    found = [_chi_square(part) for _, part in table(frame, "chunk").group_by("suite", "phase", maintain_order=True)]
    phases = pl.DataFrame([row for row in found if row], schema={**schema, "p": PART})
    several = phases.filter(pl.len().over("suite") > 1).group_by("suite", maintain_order=True)
    sums = several.agg(
        pl.lit("all").alias("phase"),
        pl.col("chunks").sum(),
        pl.col("kinds").max(),
        pl.col("statistic", "degrees").sum(),
    )
    p = [chi_square_p(row["statistic"], row["degrees"]) for row in sums.to_dicts()]
    return pl.concat([phases, sums.with_columns(p=pl.Series(p, dtype=PART))])


def _chi_square(part: pl.DataFrame) -> Mapping[str, Any] | None:
    wide = part.pivot("kind", index="chunk", values="rows").drop("chunk").to_numpy()
    test = chi_square(wide)
    first = part.row(0, named=True)
    return test and {
        "suite": first["suite"],
        "phase": first["phase"],
        "chunks": wide.shape[0],
        "kinds": wide.shape[1],
        **vars(test),
    }


def duplicates(frame: pl.DataFrame) -> pl.DataFrame:
    """Return, by kind: documents, those without a word, and how many are exact or near duplicates of a kept one."""
    cluster = table(frame, "cluster").filter(~pl.col("kept"))
    counts = [(pl.col("how") == how).sum().cast(NUMBER).alias(how) for how in ("exact", "near")]
    found = cluster.group_by("suite", "kind").agg(counts)
    every = table(frame, "documents").join(found, on=("suite", "kind"), how="left", maintain_order="left")
    return every.with_columns(pl.col("exact", "near").fill_null(0))


def contamination(frame: pl.DataFrame) -> pl.DataFrame:
    """Return, by task: items, how many could be checked, have any n-gram in the rows, are hit; the largest share."""
    return (
        table(frame, "item")
        .group_by("suite", "task", maintain_order=True)
        .agg(
            items=pl.len().cast(NUMBER),
            checked=pl.col("share").is_not_null().sum().cast(NUMBER),
            too_short=(pl.col("state") == "too short").sum().cast(NUMBER),
            any=(pl.col("found") > 0).sum().cast(NUMBER),
            hit=pl.col("hit").sum().cast(NUMBER),
            largest_share=pl.col("share").max(),
        )
    )


def contaminated(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the items that are hit with the rows that have most of them, a row for each: of an item most hit first."""
    items = table(frame, "item").filter("hit").drop("hit", "state").rename({"ngrams": "of"})
    return items.join(table(frame, "row"), on=("suite", "task", "item"), how="left", maintain_order="left_right")
