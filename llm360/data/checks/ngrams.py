"""Words and word n-grams of many texts at once, as arrays: what near duplicates and contamination are counted in.

A word is a run of letters and digits, in lower case; all else separates words, and a text's end ends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

WORD = r"[\p{L}\p{N}]+"
MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that no word is lost modulo 2^64; 2^64 over the golden ratio


def words(texts: Sequence[str] | pl.Series) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Return the words of all texts in one series, and how many each text has, int64 [texts]."""
    import polars as pl

    found = pl.Series("texts", texts, dtype=pl.String).str.to_lowercase().str.extract_all(WORD)
    return found.explode().drop_nulls(), found.list.len().cast(pl.Int64).to_numpy()


def starts(counts: npt.NDArray[np.int64], n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each n-gram begins in the series of all words, and its text: int64 [n-grams] both.

    No n-gram runs over the end of its text; a text of fewer than n words has none.
    """
    inside = np.maximum(counts - n + 1, 0)
    text = np.repeat(np.arange(len(counts)), inside)
    skipped = np.cumsum(counts - inside) - (counts - inside)  # words of earlier texts that begin no n-gram
    return np.arange(len(text)) + skipped[text], text


def hashes(
    codes: npt.NDArray[np.uint64], begin: npt.NDArray[np.int64], n: int, *, multiplier: int = MULTIPLIER
) -> npt.NDArray[np.uint64]:
    """Return the polynomial hash of the n word codes from each ``begin`` on, uint64 [n-grams], modulo 2^64."""
    factor, found = np.uint64(multiplier), np.zeros(len(begin), dtype=np.uint64)
    for offset in range(n):
        found = found * factor + codes[begin + offset]
    return found


def windows(begin: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Return the places of the n words from each ``begin`` on, int64 [n-grams, n]."""
    places: npt.NDArray[np.int64] = begin[:, None] + np.arange(n)
    return places
