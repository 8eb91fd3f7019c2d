"""The shard file of a zarr v3 array: written block by block in constant memory, and read row by row.

A shard is its inner chunks one after the other, each of INNER_ROWS rows and zstd-compressed, then an index of
(offset, bytes) for each, uint64 little-endian, and the index's crc32c (zarr v3 specification, sharding codec).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llm360.errors import IntegrityError
from llm360.files import new_file, write_bytes

INNER_ROWS = 64  # rows that are decoded together; measured best of 1, 8, 64 for reading whole chunks
LEVEL = 2  # of zstd: 2 % larger than at level 3, and a third faster to write (measured)
EMPTY = np.uint64(2**64 - 1)  # an inner chunk that is not there
Tokens = npt.NDArray[Any]  # [rows, row_tokens], uint16 or uint32


def inner_rows(shard_rows: int) -> int:
    """Return the rows of an inner chunk: the largest divisor, as zarr asks, of the shard's rows up to INNER_ROWS."""
    return max(rows for rows in range(1, INNER_ROWS + 1) if shard_rows % rows == 0)


def create_array(path: Path, *, rows: int, shard_rows: int, row_tokens: int, dtype: np.dtype[Any]) -> None:
    """Write the metadata of a zarr v3 array [rows, row_tokens] whose shard files follow by ``write_shard``.

    The bytes are zarr's own (tested), without half a second of importing it.
    """
    zstd = {"name": "zstd", "configuration": {"level": LEVEL, "checksum": False}}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {
        "chunk_shape": [inner_rows(shard_rows), row_tokens],
        "codecs": [little, zstd],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": "end",
    }
    array = {
        "shape": [rows, row_tokens],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shard_rows, row_tokens]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    write_bytes(path / "zarr.json", json.dumps(array, indent=2).encode())


def shard_path(number: int) -> str:
    """Return the path of a shard in its array's folder."""
    return f"c/{number}/0"


def write_shard(path: Path, blocks: Iterator[Tokens], *, shard_rows: int) -> None:
    """Write blocks of rows, [any, row_tokens], as one shard file; fewer rows than ``shard_rows`` end the array."""
    from numcodecs.zstd import compress

    index = np.full((shard_rows // inner_rows(shard_rows), 2), EMPTY, dtype="<u8")
    with new_file(path) as partial, open(partial, "wb") as handle:
        for number, rows in enumerate(_inner(blocks, inner_rows(shard_rows))):
            data = compress(rows, LEVEL)
            index[number] = handle.tell(), len(data)
            handle.write(data)
        handle.write(index.tobytes() + _crc32c(index.tobytes()))
        handle.flush()
        os.fsync(handle.fileno())


def _inner(blocks: Iterator[Tokens], size: int) -> Iterator[Tokens]:
    """Cut a stream of blocks into blocks of ``size`` rows; the last one is filled up with zeros, as zarr does."""
    rest: Tokens | None = None
    for block in blocks:
        rows = block if rest is None or not len(rest) else np.concatenate([rest, block])
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            yield np.ascontiguousarray(rows[start : start + size])
        rest = rows[whole:]
    if rest is not None and len(rest):
        yield np.concatenate([rest, np.zeros((size - len(rest), rest.shape[1]), dtype=rest.dtype)])


def _crc32c(data: bytes) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(data)).to_bytes(4, "little")


class Shard:
    """One open shard file. Reads only what it is asked for, inner chunk by inner chunk."""

    def __init__(self, path: Path, *, rows: int, shard_rows: int, row_tokens: int, dtype: np.dtype[Any]) -> None:
        self.path, self.rows = path, rows
        self._inner, self._row_tokens, self._dtype = inner_rows(shard_rows), row_tokens, dtype
        self._index = self._read_index(shard_rows // self._inner)

    def _read_index(self, chunks: int) -> npt.NDArray[np.uint64]:
        size = chunks * 16
        tail = self._read(max(self.path.stat().st_size - size - 4, 0), size + 4)
        if len(tail) != size + 4 or _crc32c(tail[:-4]) != tail[-4:]:
            raise IntegrityError(f"{self.path}: its index is damaged; pull this file again, or rebuild it: dvc repro")
        return np.frombuffer(tail[:-4], dtype="<u8").reshape(chunks, 2)

    def _read(self, offset: int, size: int) -> bytes:
        with open(self.path, "rb", buffering=0) as handle:
            return os.pread(handle.fileno(), size, offset)

    def all(self) -> Tokens:
        """Return every row, [rows, row_tokens]."""
        size = self._inner
        out = np.empty((-(-self.rows // size) * size, self._row_tokens), dtype=self._dtype)
        whole = self.path.read_bytes() if self.path.stat().st_size < WHOLE_BYTES else None
        for number in range(len(out) // size):
            self._decode(number, out[number * size : (number + 1) * size], whole)
        return out[: self.rows]

    def some(self, rows: npt.NDArray[np.int64]) -> Tokens:
        """Return the named rows in their order; each inner chunk that holds one is decoded once."""
        out = np.empty((len(rows), self._row_tokens), dtype=self._dtype)
        numbers = np.asarray(rows) // self._inner
        buffer = np.empty((self._inner, self._row_tokens), dtype=self._dtype)
        for number in np.unique(numbers):
            self._decode(int(number), buffer)
            here = numbers == number
            out[here] = buffer[np.asarray(rows)[here] % self._inner]
        return out

    def _decode(self, number: int, out: Tokens, whole: bytes | None = None) -> None:
        from numcodecs.zstd import decompress

        offset, size = (int(n) for n in self._index[number])
        if offset == EMPTY:
            raise IntegrityError(f"{self.path}: inner chunk {number} is missing; pull this file again")
        try:
            decompress(self._read(offset, size) if whole is None else whole[offset : offset + size], out)
        except (RuntimeError, ValueError) as error:
            raise IntegrityError(f"{self.path}: inner chunk {number} is damaged ({error}); pull it again") from error


WHOLE_BYTES = 1 << 25  # a file below this is read at once when all of it is wanted


@functools.cache
def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return uint16, or uint32 when there are more than 65,536 ids."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
