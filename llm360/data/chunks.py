"""Token chunks: one zarr v3 array per phase, one shard file per training chunk, provenance beside each.

tokens.zarr/c/<i>/0            chunk first_chunk + i: [rows_per_chunk, sequence_length + 1]
provenance/chunk_<iii>.parquet row, position, kind, epoch, spans
validation.zarr  validation.parquet   held-out documents, rows of every kind
manifest.json                  counts in, counts out, counts dropped with their reason, hashes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.chunking.shards import Shard, shard_path
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
    """Reads a phase's chunks; every file is checked against the manifest before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        if self.manifest.get("format") != FORMAT:
            raise DataError(f"{folder}: format {self.manifest.get('format')!r}, expected {FORMAT!r}; run dvc repro")
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
        return self._entries[chunk_path(chunk - first)]

    def tokens(self, chunk: int) -> npt.NDArray[Any]:
        """Return a chunk's tokens, [rows, sequence_length + 1] uint16 or uint32, in stored order."""
        return self._shard(chunk).all()

    def some(self, chunk: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the named rows of a chunk, [len(rows), sequence_length + 1], in the order of ``rows``."""
        return self._shard(chunk).some(rows)

    def _shard(self, chunk: int) -> Shard:
        entry = self.entry(chunk)
        self._verify(entry.path)
        return self._open(entry.path, rows=self.rows(chunk), shard_rows=self.manifest["rows_per_chunk"])

    def _open(self, path: str, *, rows: int, shard_rows: int) -> Shard:
        row_tokens, dtype = self.manifest["sequence_length"] + 1, np.dtype(self.manifest["dtype"])
        return Shard(self.folder / path, rows=rows, shard_rows=shard_rows, row_tokens=row_tokens, dtype=dtype)

    def provenance(self, chunk: int) -> pl.DataFrame:
        """Return a chunk's provenance, a row for each row of tokens."""
        import polars as pl

        self.entry(chunk)
        return pl.read_parquet(self._verify(provenance_path(chunk)))

    def validation(self) -> tuple[npt.NDArray[Any], pl.DataFrame]:
        """Return the held-out rows, [rows, sequence_length + 1], and their kind and spans."""
        import polars as pl

        table = pl.read_parquet(self._verify("validation.parquet"))
        path = f"{VALIDATION}/{shard_path(0)}"
        self._verify(path)
        return self._open(path, rows=len(table), shard_rows=len(table)).all(), table

    def _verify(self, path: str) -> Path:
        verify_file(self.folder / path, self._entries[path])
        return self.folder / path
