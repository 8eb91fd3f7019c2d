"""The mixture language: which kinds, which part of each, how much, how often, with or without fill-in-the-middle."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from llm360.config import require_positive
from llm360.errors import ConfigError

Select = Literal["all", "even", "odd", "first_tenth", "even_files", "odd_files", "first_tenth_files"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fim:
    """Fill in the middle (Bavarian et al. 2022) at token level: the share of documents, and of these, in SPM order.

    prefix, middle and suffix are special tokens of the tokenizer.
    """

    rate: float
    spm_rate: float
    prefix: str
    middle: str
    suffix: str

    def __post_init__(self) -> None:
        for name in ("rate", "spm_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}: read {getattr(self, name)}, expected 0 to 1")
        if len(set(self.tokens)) < 3:
            raise ConfigError(f"prefix, middle, suffix: read {', '.join(self.tokens)}, expected three different tokens")

    @property
    def tokens(self) -> tuple[str, str, str]:
        """The three special tokens."""
        return self.prefix, self.middle, self.suffix


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ingredient:
    """One kind in a mixture.

    weight is its share, in any unit; null means all that there is of it, and then it is null for every kind.
    part chooses documents by their number (CrystalCoder's halves and tenths), or whole input files by theirs.
    epochs is how often each row is read at most; cap_tokens is the most that the kind may give, the others fill up.
    """

    weight: float | None
    part: Select
    epochs: int
    fim: Fim | None = None
    cap_tokens: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "epochs", *(n for n in ("weight", "cap_tokens") if getattr(self, n) is not None))
        if self.weight is not None and not math.isfinite(self.weight):
            raise ConfigError(f"weight: read {self.weight}, expected a finite number, or null for all there is")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkParams:
    """How one phase's chunks are made. first_chunk is the index in the suite of the phase's first chunk.

    rows_per_chunk null: as many as the mixture has, in equal chunks. last_chunk_rows: when the phase's rows do not
    fill its last chunk. validation_rows are of each kind, from held-out documents.
    """

    suite: str
    phase: str
    folder: str
    tokenizer: str
    sequence_length: int
    first_chunk: int
    chunks: int
    rows_per_chunk: int | None
    validation_rows: int
    seed: int
    mixture: dict[str, Ingredient]
    last_chunk_rows: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "sequence_length", "chunks", "validation_rows")
        if self.first_chunk < 0:
            raise ConfigError(f"first_chunk: read {self.first_chunk}, expected 0 or more")
        if self.rows_per_chunk is not None:
            require_positive(self, "rows_per_chunk")
        if self.last_chunk_rows is not None and not 0 < self.last_chunk_rows <= (self.rows_per_chunk or 0):
            expected = "null, as rows_per_chunk is" if self.rows_per_chunk is None else f"1 to {self.rows_per_chunk}"
            raise ConfigError(f"last_chunk_rows: read {self.last_chunk_rows}, expected {expected}")
        if not self.mixture:
            raise ConfigError("mixture: read no kind, expected at least one with its weight")
        unweighted = [k for k, i in self.mixture.items() if i.weight is None]
        if unweighted and (len(unweighted) < len(self.mixture) or self.rows_per_chunk is not None):
            raise ConfigError(
                f"mixture.{unweighted[0]}.weight: read null, which means all there is; expected null for every kind "
                f"and for rows_per_chunk as well, or a number for each"
            )

    @property
    def row_tokens(self) -> int:
        """Tokens of a stored row: a sequence and the token after it."""
        return self.sequence_length + 1


def chunk_sizes(params: ChunkParams, rows_per_chunk: int) -> list[int]:
    """Return the rows of each chunk."""
    last = rows_per_chunk if params.last_chunk_rows is None else params.last_chunk_rows
    return [rows_per_chunk] * (params.chunks - 1) + [last]


def rows_by_kind(
    mixture: Mapping[str, Ingredient], rows: int, *, row_tokens: int, available: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return how many rows each kind gives: its share by the largest remainder, summing to ``rows`` exactly.

    available: rows of each kind over all its epochs, which stand for the weights that are null.
    Raises ConfigError when the caps do not leave room for ``rows``.
    """
    exact = shares(mixture, rows, row_tokens=row_tokens, available=available)
    counts = {k: math.floor(x) for k, x in exact.items()}
    by_remainder = sorted(exact, key=lambda k: (counts[k] - exact[k], k))
    for kind in by_remainder[: rows - sum(counts.values())]:
        counts[kind] += 1
    return counts


def shares(
    mixture: Mapping[str, Ingredient], rows: int, *, row_tokens: int, available: Mapping[str, int] | None = None
) -> dict[str, Fraction]:
    """Return each kind's exact share of ``rows``, before it is rounded: by weight, and none above its cap.

    A kind whose share is above its cap gives the cap, and the others share what it does not give.
    """
    weights = {k: _weight(k, i, available) for k, i in mixture.items()}
    caps = {k: Fraction(i.cap_tokens // row_tokens) for k, i in mixture.items() if i.cap_tokens is not None}
    capped: dict[str, Fraction] = {}
    while True:
        left = rows - sum(capped.values())
        free = {k: w for k, w in weights.items() if k not in capped and w}
        if left and not free:
            raise ConfigError(
                f"mixture: its kinds give {rows - left} rows at most, expected {rows}; raise a cap_tokens"
            )
        total = sum(free.values())
        exact = {k: left * w / total for k, w in free.items()}
        over = {k: caps[k] for k, x in exact.items() if k in caps and x > caps[k]}
        if not over:
            return {k: (capped | exact).get(k, Fraction(0)) for k in mixture}
        capped |= over


def _weight(kind: str, ingredient: Ingredient, available: Mapping[str, int] | None) -> Fraction:
    if ingredient.weight is not None:
        return Fraction(str(ingredient.weight))  # as it is written: 0.1 is a tenth, and the order of kinds is free
    if available is None:
        raise ConfigError(f"mixture.{kind}.weight: null, which means all there is, and that is not known here")
    return Fraction(available[kind])


def rows_of_all(
    available: Mapping[str, int], mixture: Mapping[str, Ingredient], chunks: int, *, row_tokens: int
) -> int:
    """Return the rows of ``chunks`` equal chunks, as large as the kinds allow: what ``rows_per_chunk`` null means.

    available: rows of each kind over all its epochs. No kind's exact share is above what it has, so that with
    weights the scarcest kind decides; one row more in each chunk would need more of a kind than there is.
    """
    low, high = 0, sum(available[k] for k in mixture) // chunks
    while low < high:  # shares grow with the rows, so what is too much once stays too much
        middle = (low + high + 1) // 2
        if _enough(available, mixture, middle * chunks, row_tokens):
            low = middle
        else:
            high = middle - 1
    return low * chunks


def _enough(available: Mapping[str, int], mixture: Mapping[str, Ingredient], rows: int, row_tokens: int) -> bool:
    try:
        exact = shares(mixture, rows, row_tokens=row_tokens, available=available)
    except ConfigError:
        return False  # the caps allow less
    return all(exact[k] <= available[k] for k in mixture)
