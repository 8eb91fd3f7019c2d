"""Token chunks: one zarr v3 array per phase, one shard file per training chunk, provenance beside each.

tokens.zarr/c/<i>/0            chunk first_chunk + i: [rows_per_chunk, sequence_length + 1]
provenance/chunk_<iii>.parquet row, position, kind, epoch, spans
validation.zarr  validation.parquet   held-out documents, rows of every kind
manifest.json                  counts in, counts out, counts dropped with their reason, hashes
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from llm360.config import require_positive
from llm360.data.order import permutation
from llm360.data.rows import Part, Rows, hold_out, pack, select_part
from llm360.errors import ConfigError, DataError
from llm360.files import FileEntry, read_manifest, verify_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = "llm360-chunks/1"
INNER_ROWS = 64  # rows that are decoded together; measured best of 1, 8, 64 for reading whole chunks
BYTES_PER_TOKEN = 3.0  # only used to pick enough documents for validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ingredient:
    """One kind in a mixture: its weight (any unit), which part of its documents, how often at most."""

    weight: float
    part: Part
    epochs: int

    def __post_init__(self) -> None:
        require_positive(self, "weight", "epochs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkParams:
    """How one phase's chunks are made. first_chunk is the index in the suite of the phase's first chunk."""

    suite: str
    phase: str
    folder: str
    tokenizer: str
    sequence_length: int
    first_chunk: int
    chunks: int
    rows_per_chunk: int
    validation_rows: int
    seed: int
    mixture: dict[str, Ingredient]
    last_chunk_rows: int | None = None  # when the phase's rows do not fill its last chunk

    def __post_init__(self) -> None:
        require_positive(self, "sequence_length", "chunks", "rows_per_chunk", "validation_rows")
        if self.last_chunk_rows is not None and not 0 < self.last_chunk_rows <= self.rows_per_chunk:
            raise ConfigError(f"last_chunk_rows: read {self.last_chunk_rows}, expected 1 to {self.rows_per_chunk}")
        if not self.mixture:
            raise ConfigError("mixture: read no kind, expected at least one with its weight")

    @property
    def rows(self) -> int:
        """Rows of the whole phase."""
        last = self.rows_per_chunk if self.last_chunk_rows is None else self.last_chunk_rows
        return (self.chunks - 1) * self.rows_per_chunk + last


def rows_by_kind(mixture: dict[str, Ingredient], rows: int) -> dict[str, int]:
    """Return how many rows each kind gives: weights by the largest remainder, summing to ``rows`` exactly."""
    total = sum(i.weight for i in mixture.values())
    exact = {k: rows * i.weight / total for k, i in mixture.items()}
    counts = {k: math.floor(x) for k, x in exact.items()}
    by_remainder = sorted(exact, key=lambda k: (counts[k] - exact[k], k))
    for kind in by_remainder[: rows - sum(counts.values())]:
        counts[kind] += 1
    return counts


def build_chunks(
    folder: Path, documents: dict[str, pl.DataFrame], encoder: Tokenizer, params: ChunkParams
) -> dict[str, Any]:
    """Write a phase's chunks into ``folder`` and return the manifest's fields (counts by kind)."""
    wanted = rows_by_kind(params.mixture, params.rows)
    trained, held, counts = [], [], {}
    for kind, rows in wanted.items():
        train, validation = _rows_of_kind(documents[kind], encoder, params, kind)
        picked, counts[kind] = _pick(train, rows, params, kind)
        trained.append(picked)
        held.append(_table(validation, kind, epoch=0, limit=params.validation_rows))
    shuffled = _shuffle(pl.concat(trained), params)
    write_rows(
        folder / "tokens.zarr", shuffled["tokens"].to_numpy(), encoder.get_vocab_size(), shard=params.rows_per_chunk
    )
    _write_provenance(folder, shuffled, params)
    _write_validation(folder, pl.concat(held), encoder.get_vocab_size())
    return {
        "format": FORMAT,
        **dataclasses.asdict(params),
        "dtype": _dtype(encoder.get_vocab_size()).name,
        "kinds": counts,
    }


def _rows_of_kind(documents: pl.DataFrame, encoder: Tokenizer, params: ChunkParams, kind: str) -> tuple[Rows, Rows]:
    row_tokens = params.sequence_length + 1
    tokens = params.validation_rows * row_tokens
    held = hold_out(documents, seed=params.seed, tokens=tokens, bytes_per_token=BYTES_PER_TOKEN)
    part = select_part(documents, params.mixture[kind].part)
    is_held = pl.col("id").is_in(held.implode())
    if part.filter(~is_held).is_empty():
        raise DataError(f"{params.folder}: {kind} has {len(part)} documents, none left after validation; add text")
    train = pack(part.filter(~is_held), encoder, row_tokens=row_tokens)
    return train, pack(documents.filter(is_held), encoder, row_tokens=row_tokens)


def _pick(train: Rows, rows: int, params: ChunkParams, kind: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """Take ``rows`` rows in a seeded order, whole epochs first; refuse when there are too few."""
    have, epochs = len(train.tokens), params.mixture[kind].epochs
    if rows > have * epochs:
        raise DataError(
            f"{params.folder}: {kind} must give {rows} rows ({rows * (params.sequence_length + 1)} tokens) but has "
            f"{have} rows x {epochs} epochs = {have * epochs}; add text, allow more epochs or lower its weight"
        )
    tables = []
    for epoch in range(math.ceil(rows / have)):
        order = permutation(have, "pick", params.seed, params.phase, kind, epoch)[: rows - epoch * have]
        table = _table(train, kind, epoch=epoch, limit=have)
        tables.append(table[order])
    counts = {"rows": rows, "rows_available": have, "epochs": epochs, "tokens_dropped_tail": train.dropped_tokens}
    return pl.concat(tables) if tables else _table(train, kind, epoch=0, limit=0), counts


def _table(rows: Rows, kind: str, *, epoch: int, limit: int) -> pl.DataFrame:
    width = rows.tokens.shape[1]
    schema = {"tokens": pl.Array(pl.UInt32, width), "spans": SPANS}
    frame = pl.DataFrame({"tokens": rows.tokens[:limit], "spans": rows.spans[:limit]}, schema=schema)
    return frame.with_columns(kind=pl.lit(kind), epoch=pl.lit(epoch))


SPANS = pl.List(
    pl.Struct(
        {
            "document": pl.String,
            "start": pl.Int64,
            "end": pl.Int64,
            "document_start": pl.Int64,
            "licence": pl.String,
            "origin": pl.String,
        }
    )
)


def _shuffle(rows: pl.DataFrame, params: ChunkParams) -> pl.DataFrame:
    order = permutation(len(rows), "shuffle", params.seed, params.phase)
    return rows[order].with_columns(row=pl.int_range(pl.len()), position=pl.int_range(pl.len()) % params.rows_per_chunk)


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def write_rows(path: Path, rows: npt.NDArray[Any], vocab_size: int, *, shard: int) -> None:
    """Write [rows, row_tokens] as a zarr v3 array whose shard files hold ``shard`` rows each."""
    import zarr
    from zarr.codecs import ZstdCodec

    width = rows.shape[1]
    array = zarr.create_array(
        store=path,
        shape=rows.shape,
        shards=(shard, width),
        chunks=(math.gcd(shard, INNER_ROWS), width),
        dtype=_dtype(vocab_size),
        compressors=ZstdCodec(level=3),
    )
    for start in range(0, len(rows), shard):  # one whole shard a write: its bytes do not depend on threads
        array[start : start + shard] = rows[start : start + shard].astype(array.dtype)


def _write_provenance(folder: Path, rows: pl.DataFrame, params: ChunkParams) -> None:
    (folder / "provenance").mkdir()
    named = rows.select("row", "position", "kind", "epoch", "spans")
    for i in range(params.chunks):
        part = named[i * params.rows_per_chunk : (i + 1) * params.rows_per_chunk]
        part.write_parquet(folder / provenance_path(params.first_chunk + i), compression="zstd")


def _write_validation(folder: Path, rows: pl.DataFrame, vocab_size: int) -> None:
    write_rows(folder / "validation.zarr", rows["tokens"].to_numpy(), vocab_size, shard=max(len(rows), 1))
    rows.select("kind", "spans").write_parquet(folder / "validation.parquet", compression="zstd")


def shard_path(local: int) -> str:
    """Return the path of a chunk's shard file in its folder; ``local`` counts from 0 in the phase."""
    return f"tokens.zarr/c/{local}/0"


def provenance_path(chunk: int) -> str:
    """Return the path of a chunk's provenance; ``chunk`` is the index in the suite."""
    return f"provenance/chunk_{chunk:03d}.parquet"


class ChunkReader:
    """Reads a phase's chunks; every file is checked against the manifest before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._entries = {e["path"]: FileEntry(**e) for e in self.manifest["files"]}

    def rows(self, chunk: int) -> int:
        """Return a chunk's number of rows; only the last one of a phase may have fewer than the others."""
        local = chunk - self.manifest["first_chunk"]
        last = local == self.manifest["chunks"] - 1 and self.manifest["last_chunk_rows"]
        return int(last or self.manifest["rows_per_chunk"])

    def entry(self, chunk: int) -> FileEntry:
        """Return the manifest's entry of a chunk's shard; raises DataError for a chunk that is not there."""
        first, count = self.manifest["first_chunk"], self.manifest["chunks"]
        if not first <= chunk < first + count:
            raise DataError(f"{self.folder}: no chunk {chunk}; it holds {first} to {first + count - 1}")
        return self._entries[shard_path(chunk - first)]

    def tokens(self, chunk: int) -> npt.NDArray[Any]:
        """Return a chunk's tokens, [rows, sequence_length + 1] uint16 or uint32, in stored order."""
        entry = self.entry(chunk)
        verify_file(self.folder / entry.path, entry)
        start = (chunk - self.manifest["first_chunk"]) * self.manifest["rows_per_chunk"]
        return np.asarray(self._array("tokens.zarr")[start : start + self.rows(chunk)])

    def provenance(self, chunk: int) -> pl.DataFrame:
        """Return a chunk's provenance, a row for each row of tokens."""
        entry = self._entries[provenance_path(chunk)]
        verify_file(self.folder / entry.path, entry)
        return pl.read_parquet(self.folder / entry.path)

    def validation(self) -> tuple[npt.NDArray[Any], pl.DataFrame]:
        """Return the held-out rows, [rows, sequence_length + 1], and their kind and spans."""
        for path in [p for p in self._entries if p.startswith("validation")]:
            verify_file(self.folder / path, self._entries[path])
        return np.asarray(self._array("validation.zarr")[:]), pl.read_parquet(self.folder / "validation.parquet")

    def _array(self, name: str) -> Any:
        import zarr

        verify_file(self.folder / name / "zarr.json", self._entries[f"{name}/zarr.json"])
        return zarr.open_array(self.folder / name, mode="r")
