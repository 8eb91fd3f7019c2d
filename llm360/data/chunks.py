"""Token chunks: one zarr v3 array per phase, one shard file per training chunk, provenance beside each.

tokens.zarr/c/<i>/0            chunk first_chunk + i: [rows_per_chunk, sequence_length + 1]
provenance/chunk_<iii>.parquet row, array_row, kind, epoch, spans
validation.zarr  validation.parquet   held-out documents, rows of every kind
manifest.json                  counts in, counts out, counts dropped with their reason, hashes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llm360.data.chunking.shards import Shard, Tokens, shard_path
from llm360.errors import DataError
from llm360.files import FileEntry, read_manifest, verify_file

if TYPE_CHECKING:
    import polars as pl

FORMAT = "llm360-chunks/2"
TOKENS, VALIDATION = "tokens.zarr", "validation.zarr"


def chunk_path(local: int) -> str:
    """Return the path of a chunk's shard file in its folder; ``local`` counts from 0 in the phase."""
    return f"{TOKENS}/{shard_path(local)}"


def provenance_path(chunk: int) -> str:
    """Return the path of a chunk's provenance; ``chunk`` is the index in the suite."""
    return f"provenance/chunk_{chunk:03d}.parquet"


class ChunkReader:
    """Reads a phase's chunks; every file is checked against the manifest before it is used.

    A file is hashed once by a reader, and again when its size or time of change is another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        if self.manifest.get("format") != FORMAT:
            raise DataError(f"{folder}: format {self.manifest.get('format')!r}, expected {FORMAT!r}; run dvc repro")
        self._entries = {e["path"]: FileEntry(**e) for e in self.manifest["files"]}
        self._verified: dict[str, tuple[int, int]] = {}

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
        return self._entries[chunk_path(chunk - first)]

    def tokens(self, chunk: int) -> Tokens:
        """Return a chunk's tokens, [rows, sequence_length + 1] uint16 or uint32, in stored order."""
        return self._shard(chunk).all()

    def some(self, chunk: int, rows: npt.NDArray[np.int64]) -> Tokens:
        """Return the named rows of a chunk, [len(rows), sequence_length + 1], in the order of ``rows``."""
        return self._shard(chunk).some(rows)

    def blocks(self, chunk: int, size: int) -> Iterator[Tokens]:
        """Yield a chunk's tokens in stored order, ``size`` rows at a time, for a chunk too large to hold."""
        shard = self._shard(chunk)
        for start in range(0, shard.rows, size):
            yield shard.some(np.arange(start, min(start + size, shard.rows)))

    def _shard(self, chunk: int) -> Shard:
        entry = self.entry(chunk)
        self._verify(entry.path)
        return self._open(entry.path, rows=self.rows(chunk), shard_rows=self.manifest["rows_per_chunk"])

    def _open(self, path: str, *, rows: int, shard_rows: int) -> Shard:
        row_tokens, dtype = self.manifest["sequence_length"] + 1, np.dtype(self.manifest["dtype"])
        return Shard(self.folder / path, rows=rows, shard_rows=shard_rows, row_tokens=row_tokens, dtype=dtype)

    def provenance(self, chunk: int, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return a chunk's provenance, a row for each row of tokens; None means every column."""
        import polars as pl

        self.entry(chunk)
        path = self._verify(provenance_path(chunk))
        return pl.read_parquet(path, columns=None if columns is None else list(columns))

    def validation(self) -> tuple[Tokens, pl.DataFrame]:
        """Return the held-out rows, [rows, sequence_length + 1], and their kind and spans."""
        import polars as pl

        table = pl.read_parquet(self._verify("validation.parquet"))
        path = f"{VALIDATION}/{shard_path(0)}"
        self._verify(path)
        return self._open(path, rows=len(table), shard_rows=len(table)).all(), table

    def _verify(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file() or self._verified.get(name) != _state(path):
            verify_file(path, self._entries[name])
            self._verified[name] = _state(path)
        return path


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
