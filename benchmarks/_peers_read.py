"""Readers of the same rows, behind one type: our chunks, numpy's memmap, HF datasets on Arrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llm360.data.chunking.shards import Shard
from llm360.data.chunks import ChunkReader, chunk_path

Tokens = npt.NDArray[Any]  # [rows, row_tokens], uint16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """chunk(i) returns a whole chunk, row(i, j) one row of it, both as arrays in memory; bytes are of its files."""

    name: str
    chunk: Callable[[int], Tokens]
    row: Callable[[int, int], Tokens]
    bytes: int


def verified(reader: ChunkReader) -> Reader:
    """Our reader as training uses it: every file is hashed before it is used."""
    return Reader(
        name="ours, hashes checked",
        chunk=reader.tokens,
        row=lambda chunk, row: reader.some(chunk, np.array([row]))[0],
        bytes=sum(reader.entry(chunk).bytes for chunk in range(reader.manifest["chunks"])),
    )


def unverified(reader: ChunkReader) -> Reader:
    """The same files and decoder without hashes; a shard is opened for a whole chunk, and stays open for rows."""
    opened = [_open(reader, chunk) for chunk in range(reader.manifest["chunks"])]
    return Reader(
        name="ours, not checked",
        chunk=lambda chunk: _open(reader, chunk).all(),
        row=lambda chunk, row: opened[chunk].some(np.array([row]))[0],
        bytes=verified(reader).bytes,
    )


def _open(reader: ChunkReader, chunk: int) -> Shard:
    return Shard(
        reader.folder / chunk_path(chunk),
        rows=reader.rows(chunk),
        shard_rows=reader.manifest["rows_per_chunk"],
        row_tokens=reader.manifest["sequence_length"] + 1,
        dtype=np.dtype(reader.manifest["dtype"]),
    )


def memmap(reader: ChunkReader, folder: Path) -> Reader:
    """numpy.memmap of one raw file; rows are copied out, as a step needs them in memory."""
    path, width, size = folder / "rows.bin", reader.manifest["sequence_length"] + 1, reader.rows(0)
    with open(path, "wb") as out:
        for chunk in range(reader.manifest["chunks"]):
            out.write(reader.tokens(chunk).tobytes())
    mapped = np.memmap(path, dtype=reader.manifest["dtype"], mode="r").reshape(-1, width)
    return Reader(
        name="numpy.memmap",
        chunk=lambda chunk: np.array(mapped[chunk * size : (chunk + 1) * size]),
        row=lambda chunk, row: np.array(mapped[chunk * size + row]),
        bytes=path.stat().st_size,
    )


def hf_datasets(reader: ChunkReader, folder: Path) -> Reader:
    """HF datasets: an Arrow file of fixed-size lists, memory-mapped by the library, read in its numpy format."""
    from datasets import Dataset, Features, List, Value, load_from_disk

    width, size = reader.manifest["sequence_length"] + 1, reader.rows(0)
    features = Features({"tokens": List(Value(reader.manifest["dtype"]), length=width)})
    Dataset.from_generator(_rows, features=features, gen_kwargs={"reader": reader}, cache_dir=str(folder)).save_to_disk(
        folder / "arrow"
    )
    data = load_from_disk(folder / "arrow").with_format("numpy")
    return Reader(
        name="HF datasets",
        chunk=lambda chunk: np.asarray(data[chunk * size : (chunk + 1) * size]["tokens"]),
        row=lambda chunk, row: np.asarray(data[chunk * size + row]["tokens"]),
        bytes=sum(path.stat().st_size for path in (folder / "arrow").glob("*.arrow")),
    )


def _rows(reader: ChunkReader) -> Any:
    for chunk in range(reader.manifest["chunks"]):
        for row in reader.tokens(chunk):
            yield {"tokens": row}


def same(readers: list[Reader], *, chunk: int, row: int) -> None:
    """End when two readers do not give the same rows."""
    for reader in readers[1:]:
        if not np.array_equal(reader.chunk(chunk), readers[0].chunk(chunk)):
            raise SystemExit(f"{reader.name}: chunk {chunk} is another than that of {readers[0].name}, expected equal")
        if not np.array_equal(reader.row(chunk, row), readers[0].row(chunk, row)):
            raise SystemExit(f"{reader.name}: row {row} of chunk {chunk} is not that of {readers[0].name}")
