"""Means with their errors, correlations that are null, never NaN, where undefined, and the chi-square test."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChiSquare:
    """Pearson's statistic, its degrees of freedom, and the chance of one as large where all groups are alike."""

    statistic: float
    degrees: int
    p: float


def chi_square(counts: npt.NDArray[np.int64]) -> ChiSquare | None:
    """Return whether groups are drawn alike, from counts [groups, kinds]; None where there is nothing to compare.

    Each group's expected counts are its size times the share of each kind in all groups together.
    """
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(counts.shape) < 2:
        return None
    degrees = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return ChiSquare(statistic=statistic, degrees=degrees, p=chi_square_p(statistic, degrees))


def chi_square_p(statistic: float, degrees: int) -> float:
    """Return the upper tail of the chi-square distribution by Wilson and Hilferty's cube root (PNAS 1931).

    Within 0.06 of the exact value at one degree of freedom, 0.006 at three, 0.002 from ten on (measured with scipy).
    """
    spread = 2 / (9 * degrees)
    return 0.5 * math.erfc(((statistic / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(2 * spread))
