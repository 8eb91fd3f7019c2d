"""Which row is at which place of a phase: a pure function of the counts, the seed and the place.

A place is a number over the whole phase: chunk i holds the places from i * rows_per_chunk on. ``shuffled`` sends it to
a row of the mixture, whose kinds follow one another, each with its epochs one after the other; within an epoch the
rows come in a shuffled order, so that an epoch that is not read to its end is a fair sample.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from llm360.data.order import Indices, shuffled
from llm360.errors import DataError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """One reading of a kind: files holds paths without suffix, rows their numbers of rows, wanted is how many."""

    kind: str
    epoch: int
    files: list[str]
    rows: list[int]
    wanted: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Places:
    """Where the rows of some places are: indices into the pools, into a pool's files, and of the row in the file."""

    pool: Indices
    file: Indices
    row: Indices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mix:
    """All rows of a phase."""

    seed: int
    phase: str
    pools: list[Pool]

    @property
    def rows(self) -> int:
        """Rows of the phase."""
        return sum(p.wanted for p in self.pools)

    def locate(self, places: Indices) -> Places:
        """Return where the rows of ``places`` are; memory is that of ``places``."""
        index = shuffled(places, self.rows, "shuffle", self.seed, self.phase)
        ends = np.cumsum([p.wanted for p in self.pools])
        pool = np.searchsorted(ends, index, side="right")
        file, row = np.empty_like(index), np.empty_like(index)
        for number in np.unique(pool):
            here = pool == number
            before = int(ends[number]) - self.pools[number].wanted
            file[here], row[here] = self._in_pool(self.pools[number], index[here] - before)
        return Places(pool=pool, file=file, row=row)

    def _in_pool(self, pool: Pool, index: Indices) -> tuple[Indices, Indices]:
        picked = shuffled(index, sum(pool.rows), "pick", self.seed, self.phase, pool.kind, pool.epoch)
        ends = np.cumsum(pool.rows)
        file = np.searchsorted(ends, picked, side="right")
        return file, picked - (ends - np.asarray(pool.rows))[file]


def epochs_of(kind: str, wanted: int, available: list[int], *, row_tokens: int) -> list[int]:
    """Return how many rows each epoch gives: whole epochs first. available: the rows of each allowed epoch.

    Raises DataError when they are too few, with the arithmetic.
    """
    if wanted > sum(available):
        epochs = len(available)
        raise DataError(
            f"{kind}: {wanted} rows x {row_tokens} tokens = {wanted * row_tokens} tokens are wanted, but it has "
            f"{' + '.join(map(str, available))} = {sum(available)} rows in {epochs} epoch{'s' * (epochs > 1)}; add "
            f"text, allow more epochs, lower its weight or the number of rows"
        )
    before = np.cumsum([0, *available])[:-1]
    return [int(n) for n in np.clip(wanted - before, 0, available)]
