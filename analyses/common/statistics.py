"""Means with their errors, and correlations between checkpoints that are null, never NaN, where undefined."""

from __future__ import annotations

import numpy as np
import polars as pl


def means(frame: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return per ``keys``: rows, mean score and its standard error, share extracted, and share seen if it is no key."""
    error = (pl.col("score").std() / pl.len().sqrt()).alias("stderr")
    found = [pl.len().alias("rows"), pl.col("score").mean(), error, pl.col("extracted").mean()]
    found += [] if "seen" in keys else [pl.col("seen").mean()]
    return frame.group_by(*keys).agg(*found).sort(*keys)


def correlations(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return Pearson's correlation of ``column`` for each two checkpoints a, b, over the rows that both have seen.

    null where it is not defined: fewer than two rows, or no variance.
    """
    found = []
    for (suite,), part in frame.filter("seen").group_by("suite", maintain_order=True):
        values = part.with_columns(pl.col(column).cast(pl.Float64))
        wide = values.pivot("ckpt", index=["chunk", "row"], values=column)
        ckpts = sorted(part["ckpt"].unique().to_list())
        for a, b in ((a, b) for a in ckpts for b in ckpts):
            pair = wide.select(pl.col(str(a)).alias("a"), pl.col(str(b)).alias("b")).drop_nulls()
            found.append({"suite": suite, "a": a, "b": b, "rows": len(pair), "correlation": pearson(pair)})
    return pl.DataFrame(found, schema={"suite": pl.String, "a": int, "b": int, "rows": int, "correlation": pl.Float64})


def pearson(pair: pl.DataFrame) -> float | None:
    """Return the correlation of columns a and b, or None."""
    if len(pair) < 2 or pair["a"].n_unique() < 2 or pair["b"].n_unique() < 2:
        return None
    return float(np.corrcoef(pair["a"].to_numpy(), pair["b"].to_numpy())[0, 1])
