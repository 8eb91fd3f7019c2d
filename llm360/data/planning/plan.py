"""The planner: what a mixture will need, in rows, tokens, steps, epochs and disk, before any work is done."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

from llm360.data.chunking.shards import token_dtype
from llm360.data.mixture import ChunkParams, chunk_sizes, rows_by_kind, rows_of_all
from llm360.data.planning.refusals import require_possible, require_room, require_special, size
from llm360.data.planning.supply import Supply, counted
from llm360.errors import DataError
from llm360.progress import say

# Measured, and assumed to hold elsewhere (docs/mixtures.md): for a verdict on the disk, not for anyone's bytes.
CHUNK_RATIO = 1.97  # bytes of tokens in a byte of a chunk: uint16, zstd level 3, inner chunks of 64 rows of 2,049
SPAN_BYTES = 160  # of a span beside the packed rows
PROVENANCE_SPAN_BYTES = 20  # of a span beside the chunks, compressed
PROVENANCE_FILE_BYTES = 4_000  # of a chunk's provenance without spans
DOCUMENT_TOKENS = 1_000  # of a document, where there are none to count; not measured


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindPlan:
    """What one kind gives to a phase. share: of the phase's rows; tokens: of its rows; epochs: allowed."""

    kind: str
    share: float
    rows: int
    tokens: int
    epochs: int
    fim: bool
    supply: Supply

    @property
    def epochs_needed(self) -> float | None:
        """How often each token is read, null where it is not known how many there are."""
        return self.tokens / self.supply.tokens if self.supply.tokens else None

    @property
    def short(self) -> int:
        """Tokens that are missing for certain: more than the tolerance of what there is said to be."""
        if self.supply.tokens is None:
            return 0
        return max(self.tokens - (self.supply.tokens + self.supply.tolerance) * self.epochs, 0)

    @property
    def over(self) -> bool:
        """Whether it is read more often than allowed, if there is just as much of it as is said."""
        return (self.epochs_needed or 0) > self.epochs

    @property
    def packed_tokens(self) -> int:
        """Tokens that are packed for it: all there are, and again for each epoch that fills in the middle."""
        if self.supply.tokens is None:
            return self.tokens
        return self.supply.tokens * (math.ceil(self.epochs_needed or 0) if self.fim else 1)

    def spans(self, tokens: int, row_tokens: int) -> int:
        """Return the spans of so many of its tokens: one in a row, and one more for each document that begins in it."""
        supply = self.supply
        if supply.documents is None or not supply.tokens:
            return round(tokens / row_tokens + tokens / DOCUMENT_TOKENS)
        return round(tokens / row_tokens + tokens * supply.documents / supply.tokens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """What one phase will need. Sizes of chunks in rows, tokens of row_tokens a row, disk in bytes."""

    folder: str
    sequence_length: int
    chunk_rows: tuple[int, ...]
    batch_size: int | None
    token_bytes: int
    kinds: tuple[KindPlan, ...]

    @property
    def rows(self) -> int:
        """Rows of the phase."""
        return sum(self.chunk_rows)

    @property
    def tokens(self) -> int:
        """Tokens stored: a row is a sequence and the token after it."""
        return self.rows * (self.sequence_length + 1)

    @property
    def steps(self) -> tuple[int, ...]:
        """Optimizer steps of each chunk; none without a batch size."""
        return tuple(rows // self.batch_size for rows in self.chunk_rows) if self.batch_size else ()

    @property
    def rows_left(self) -> tuple[int, ...]:
        """Rows of each chunk that fill no step."""
        return tuple(rows % self.batch_size for rows in self.chunk_rows) if self.batch_size else ()

    @property
    def targets(self) -> int | None:
        """Tokens that are predicted in training."""
        return sum(self.steps) * self.batch_size * self.sequence_length if self.batch_size else None

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the finished chunks and their provenance."""
        spans = sum(k.spans(k.tokens, self.sequence_length + 1) for k in self.kinds)
        provenance = len(self.chunk_rows) * PROVENANCE_FILE_BYTES + spans * PROVENANCE_SPAN_BYTES
        return math.ceil(self.tokens * self.token_bytes / CHUNK_RATIO) + provenance

    @property
    def working_bytes(self) -> int:
        """Bytes of the packed rows and their spans, which are there until the chunks are."""
        packed = {k: k.packed_tokens for k in self.kinds}
        return sum(
            tokens * self.token_bytes + kind.spans(tokens, self.sequence_length + 1) * SPAN_BYTES
            for kind, tokens in packed.items()
        )

    @property
    def peak_bytes(self) -> int:
        """Free space that making the chunks needs."""
        return self.working_bytes + self.chunk_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What several phases will need together, one after the other."""

    phases: Mapping[str, PhasePlan]

    @property
    def documents_bytes(self) -> int:
        """Bytes of the documents of every kind, each once."""
        return sum({k.kind: k.supply.documents_bytes for p in self.phases.values() for k in p.kinds}.values())

    @property
    def chunk_bytes(self) -> int:
        """Bytes of all finished chunks."""
        return sum(p.chunk_bytes for p in self.phases.values())

    @property
    def peak_bytes(self) -> int:
        """Documents, chunks, and the packed rows of the largest phase."""
        return self.documents_bytes + self.chunk_bytes + max(p.working_bytes for p in self.phases.values())


def plan(
    phases: Mapping[str, ChunkParams],
    supplies: Mapping[str, Mapping[str, Supply]],
    batch_sizes: Mapping[str, int],
    vocab_sizes: Mapping[str, int],
) -> Plan:
    """Plan every phase; the mappings have its key. Raises what ``plan_phase`` does."""
    return Plan(
        phases={
            key: plan_phase(params, supplies[key], batch_size=batch_sizes.get(key), vocab_size=vocab_sizes[key])
            for key, params in phases.items()
        }
    )


def plan_phase(
    params: ChunkParams, supplies: Mapping[str, Supply], *, batch_size: int | None, vocab_size: int
) -> PhasePlan:
    """Do the arithmetic of one phase. Raises DataError where all there is was asked for and that is nothing or unknown.

    A plan may be impossible: ``require_possible`` refuses it, so that it can be shown before.
    """
    available = _available(params, supplies)
    sizes = chunk_sizes(params, params.rows_per_chunk or _largest(params, available))
    rows = rows_by_kind(params.mixture, sum(sizes), row_tokens=params.row_tokens, available=available)
    return PhasePlan(
        folder=params.folder,
        sequence_length=params.sequence_length,
        chunk_rows=tuple(sizes),
        batch_size=batch_size,
        token_bytes=token_dtype(vocab_size).itemsize,
        kinds=tuple(_kind(params, k, n, sum(sizes), supplies[k]) for k, n in rows.items()),
    )


def _kind(params: ChunkParams, kind: str, rows: int, of: int, supply: Supply) -> KindPlan:
    ingredient = params.mixture[kind]
    return KindPlan(
        kind=kind,
        share=rows / of,
        rows=rows,
        tokens=rows * params.row_tokens,
        epochs=ingredient.epochs,
        fim=ingredient.fim is not None,
        supply=supply,
    )


def _available(params: ChunkParams, supplies: Mapping[str, Supply]) -> dict[str, int]:
    """Return the rows that each kind has over all its epochs; none when rows_per_chunk says how many are wanted."""
    if params.rows_per_chunk is not None:
        return {}
    unknown = [f"{k} ({supplies[k].note})" for k in params.mixture if supplies[k].tokens is None]
    if unknown:
        raise DataError(
            f"{params.folder}: rows_per_chunk is null, which means all there is, but how much there is of "
            f"{', '.join(unknown)} is not known; build its source and the tokenizer, or declare its tokens"
        )
    return {k: (supplies[k].tokens or 0) * i.epochs // params.row_tokens for k, i in params.mixture.items()}


def _largest(params: ChunkParams, available: Mapping[str, int]) -> int:
    rows = rows_of_all(available, params.mixture, params.chunks, row_tokens=params.row_tokens)
    if not rows:
        raise DataError(
            f"{params.folder}: {params.chunks} chunks need a row each, and the mixture gives less; kinds have "
            f"{', '.join(f'{k} {n} rows' for k, n in available.items())}; add text or make fewer chunks"
        )
    return rows // params.chunks


def check_phase(params: ChunkParams, sources: Path, tokenizer: Path, batch_size: int | None, work: Path) -> PhasePlan:
    """Plan a phase from what is built, say so, and refuse what cannot be made before any work is done.

    sources holds a folder per kind; work is where packed rows and chunks will be written. Raises DataError for a
    mixture that cannot be, ConfigError for a special token that the tokenizer lacks, StorageFull for a small disk.
    """
    from llm360.data.tokens.encoder import cached_encoder

    encoder = cached_encoder(tokenizer)
    require_special(params, encoder.special_tokens)
    supplies = {kind: counted(sources / kind, i, params, encoder) for kind, i in params.mixture.items()}
    phase = plan_phase(params, supplies, batch_size=batch_size, vocab_size=encoder.vocab_size)
    for line in summary(phase):
        say(line)
    require_possible(phase)
    require_room(phase, work)
    return phase


def summary(phase: PhasePlan) -> list[str]:
    """Return a plan in three lines."""
    kinds = (f"{k.kind} {k.rows:,} ({_epochs(k)})" for k in phase.kinds)
    steps = f", {sum(phase.steps):,} steps of {phase.batch_size:,}" if phase.batch_size else ""
    return [
        f"{phase.folder}: {len(phase.chunk_rows)} chunks, {phase.rows:,} rows, {phase.tokens:,} tokens{steps}",
        f"{phase.folder}: rows {', '.join(kinds)}",
        f"{phase.folder}: about {size(phase.peak_bytes)} of disk ({size(phase.working_bytes)} until it is done)",
    ]


def _epochs(kind: KindPlan) -> str:
    needed = kind.epochs_needed
    return f"{'?' if needed is None else format(needed, '.2f')} epochs of {kind.epochs}"
