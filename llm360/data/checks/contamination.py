"""Benchmark contamination: how much of each evaluation item stands in the training rows, counted in word n-grams.

An item's share is the part of its distinct n-grams that some row has, over all rows together: documents are cut into
rows and the rows shuffled, so an item's two halves may lie chunks apart. A cut costs the n - 1 n-grams that run over
it, a changed word the n that hold it. Hashes only point: every n-gram found is compared word by word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llm360.config import require_positive
from llm360.data.checks.ngrams import MULTIPLIER, hashes, starts, windows, words
from llm360.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

COMMON = 10  # n-grams of more items than this are a benchmark's wording, not an item's content
CHECKED, SHORT, WORDING = "checked", "too short", "common wording"
FILTER_BITS = 24  # of a hash, asked first: with a million n-grams of items, one in fifteen is then searched for


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContaminationParams:
    """n-grams of ``ngram`` words; an item is hit from the share ``threshold`` on; rows_listed rows named per item.

    Where k words of an item with d distinct n-grams are changed, its share is still at least 1 - k * ngram / d.
    """

    ngram: int
    threshold: float
    rows_listed: int

    def __post_init__(self) -> None:
        require_positive(self, "ngram", "rows_listed")
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold: read {self.threshold}, expected a share above 0, at most 1")


class Contamination:
    """The n-grams of all items, and what the rows shown so far have of them.

    items: a frame of task, item, text. Memory: the items' n-grams, and the rows of one call.
    """

    def __init__(self, items: pl.DataFrame, params: ContaminationParams) -> None:
        import polars as pl

        self.params = params
        self._table, item = Table.of(items["text"], params.ngram)
        members = pl.DataFrame({"gram": self._table.number, "item": item}).unique().sort("gram", "item")
        self._members = members.filter(pl.len().over("gram") <= COMMON)
        self._seen = np.zeros(len(self._table.keys), dtype=bool)
        self._items = items.select("task", "item").with_columns(words=self._table.counts)
        self._rows = pl.DataFrame(schema=dict.fromkeys(("item", "chunk", "row", "ngrams"), pl.Int64))

    def add(self, texts: Sequence[str], *, chunk: int, first_row: int) -> None:
        """Count what rows of a chunk have of the items; texts are those of its rows from ``first_row`` on."""
        import polars as pl

        gram, row = self._table.matches(texts)
        if not len(gram):
            return
        self._seen[gram] = True
        found = pl.DataFrame({"gram": gram, "row": row + first_row, "chunk": np.full(len(row), chunk)})
        hits = found.unique().join(self._members, on="gram")
        rows = hits.group_by("item", "chunk", "row").agg(ngrams=pl.len().cast(pl.Int64))
        every = pl.concat([self._rows, rows]).sort("item", -pl.col("ngrams"), "chunk", "row")
        self._rows = every.group_by("item", maintain_order=True).head(self.params.rows_listed)

    def items(self) -> pl.DataFrame:
        """Return a row per item: task, item, words, ngrams, found, share (null where none can be), hit, state.

        state: checked; too short for one n-gram; or common wording, no n-gram that COMMON other items do not share.
        """
        import polars as pl

        seen = self._members.with_columns(seen=pl.Series(self._seen)[self._members["gram"]])
        counted = seen.group_by("item").agg(ngrams=pl.len(), found=pl.col("seen").sum()).cast(pl.Int64)
        every = self._items.with_columns(index=pl.int_range(pl.len()))
        joined = every.join(counted, left_on="index", right_on="item", how="left", maintain_order="left")
        share = pl.col("found") / pl.col("ngrams")
        short = pl.when(pl.col("words") < self.params.ngram).then(pl.lit(SHORT)).otherwise(pl.lit(WORDING))
        return joined.drop("index").with_columns(
            pl.col("ngrams", "found").fill_null(0),
            share=share,
            hit=(share >= self.params.threshold).fill_null(value=False),
            state=pl.when(share.is_not_null()).then(pl.lit(CHECKED)).otherwise(short),
        )

    def rows(self) -> pl.DataFrame:
        """Return, for each item that is hit, the rows that have most of it: task, item, chunk, row, ngrams."""
        import polars as pl

        hit = self.items().with_columns(index=pl.int_range(pl.len())).filter("hit").select("task", "item", "index")
        return hit.join(self._rows, left_on="index", right_on="item", maintain_order="left_right").drop("index")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The distinct n-grams of texts, looked up by hash.

    number: for each n-gram in order, which of the distinct ones it is; keys: their hashes, ascending uint64; first:
    where in ``words`` each begins; maybe: whether some key begins with these FILTER_BITS bits; counts: words by text.
    """

    n: int
    words: pl.Series
    counts: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    first: npt.NDArray[np.int64]
    multiplier: int
    maybe: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: pl.Series, n: int) -> tuple[Table, npt.NDArray[np.int64]]:
        """Return the table of these texts, and the text that each n-gram in order comes from."""
        named, counts = words(texts)
        begin, text = starts(counts, n)
        keys, first, number, multiplier = _distinct(named.rank("dense").cast(int).to_numpy(), named, begin, n)
        maybe = np.zeros(1 << FILTER_BITS, dtype=bool)
        maybe[keys >> np.uint64(64 - FILTER_BITS)] = True
        return cls(
            n=n, words=named, counts=counts, number=number, keys=keys, first=begin[first],
            multiplier=multiplier, maybe=maybe,
        ), text  # fmt: skip

    def matches(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the table's n-grams that stand in the texts, and the text of each: int64 [matches] both."""
        named, counts = words(texts)
        begin, text = starts(counts, self.n)
        keys = hashes(named.hash().to_numpy(), begin, self.n, multiplier=self.multiplier)
        near = np.flatnonzero(self.maybe[keys >> np.uint64(64 - FILTER_BITS)])
        place = np.searchsorted(self.keys, keys[near])
        equal = self.keys[np.minimum(place, len(self.keys) - 1)] == keys[near]
        near, place = near[equal], place[equal]
        here = named[windows(begin[near], self.n).ravel()]
        there = self.words[windows(self.first[place], self.n).ravel()]
        same = (here == there).to_numpy().reshape(-1, self.n).all(axis=1)
        return place[same], text[near[same]]


def _distinct(
    codes: npt.NDArray[np.int64], named: pl.Series, begin: npt.NDArray[np.int64], n: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Return the distinct n-grams' ascending hashes, the first n-gram of each, each n-gram's number, the multiplier.

    codes: a number per distinct word. Where two n-grams hash alike another multiplier is tried, so that a hash names
    one n-gram of the table.
    """
    multiplier = MULTIPLIER
    while True:
        every = hashes(named.hash().to_numpy(), begin, n, multiplier=multiplier)
        keys, first, number = np.unique(every, return_index=True, return_inverse=True)
        alike = begin[first][number]
        if all((codes[begin + j] == codes[alike + j]).all() for j in range(n)):
            return keys, first, number, multiplier
        multiplier += 2
