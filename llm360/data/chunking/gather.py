"""One chunk gathered from the packed rows: its shard, and beside it the provenance of each row."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.arrow import int64, strings
from llm360.data.chunking.mix import Mix, Pool
from llm360.data.chunking.rows import rows_path, span_type, spans_path
from llm360.data.chunking.shards import write_shard
from llm360.data.chunks import chunk_path, provenance_path
from llm360.data.order import Indices
from llm360.files import new_file, read_json, write_json

if TYPE_CHECKING:
    import pyarrow as pa

MIX = "mix.json"
BLOCK = 4096  # rows that are gathered at a time: decides the memory, not the result


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkTask:
    """One chunk: the places [first, first + rows) of the mix; its number in the phase, and its index in the suite."""

    work: Path
    mix_sha256: str
    local: int
    chunk: int
    first: int
    rows: int
    shard_rows: int
    row_tokens: int
    dtype: str


def write_chunk(task: ChunkTask) -> dict[str, int]:
    """Write one chunk and return its rows by kind; returns what is there when it was done before, of the same mix."""
    done = task.work / "chunks" / f"{task.local}-{task.mix_sha256[:16]}.json"
    if done.is_file():
        return dict(read_json(done))
    with Provenance(task.work / provenance_path(task.chunk)) as provenance:
        blocks = (_block(task, at, provenance) for at in range(0, task.rows, BLOCK))
        write_shard(task.work / chunk_path(task.local), blocks, shard_rows=task.shard_rows)
    write_json(done, provenance.kinds)
    return provenance.kinds


def _block(task: ChunkTask, at: int, provenance: Provenance) -> npt.NDArray[Any]:
    rows = np.arange(at, min(at + BLOCK, task.rows))
    mix = read_mix(task.work / MIX, task.mix_sha256)
    tokens, named = gather(mix, task.first + rows, row_tokens=task.row_tokens, dtype=np.dtype(task.dtype))
    provenance.write(rows, task.first + rows, named)
    return tokens


@functools.lru_cache(maxsize=1)
def read_mix(path: Path, sha256: str) -> Mix:
    """Read a mix, once per process; its hash tells the mixes of one path apart."""
    fields: dict[str, Any] = read_json(path)
    return Mix(**{**fields, "pools": [Pool(**p) for p in fields["pools"]]})


def gather(
    mix: Mix, places: Indices, *, row_tokens: int, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    """Return the rows at ``places``, [places, row_tokens], and their columns kind, epoch and spans.

    They are read in the order of the files that they lie in, and handed on in that of the places.
    """
    import pyarrow as pa

    where = mix.locate(places)
    order = np.lexsort((where.row, where.file, where.pool))
    tokens = np.empty((len(places), row_tokens), dtype=dtype)
    spans = []
    for here in _runs(order, where.pool, where.file):
        path = Path(mix.pools[where.pool[here[0]]].files[where.file[here[0]]])
        tokens[here] = read_rows(rows_path(path), where.row[here], row_tokens=row_tokens, dtype=dtype)
        spans.append(read_spans(spans_path(path), where.row[here]))
    kinds = strings([p.kind for p in mix.pools]).take(int64(where.pool))
    epochs = int64(np.array([p.epoch for p in mix.pools])[where.pool])
    return tokens, {"kind": kinds, "epoch": epochs, "spans": pa.concat_arrays(spans).take(int64(np.argsort(order)))}


def _runs(order: Indices, pool: Indices, file: Indices) -> list[Indices]:
    """Cut ``order`` where the file changes."""
    changes = (np.diff(pool[order]) != 0) | (np.diff(file[order]) != 0)
    return np.split(order, np.flatnonzero(changes) + 1)


def read_rows(path: Path, rows: Indices, *, row_tokens: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the named rows of a file of raw rows, each read by itself: the file's size plays no part."""
    size = row_tokens * dtype.itemsize
    out = np.empty((len(rows), row_tokens), dtype=dtype)
    with open(path, "rb", buffering=0) as handle:
        for i, row in enumerate(rows.tolist()):
            handle.seek(row * size)
            handle.readinto(memoryview(out[i]).cast("B"))
    return out


def read_spans(path: Path, rows: Indices) -> pa.Array:
    """Return the spans of the named rows of a file of spans."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(0).column(0).take(int64(rows))


class Provenance:
    """The Parquet file of a chunk's provenance, written block by block; it appears by rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds: dict[str, int] = {}

    def __enter__(self) -> Provenance:
        import pyarrow.parquet as pq

        with contextlib.ExitStack() as stack:
            partial = stack.enter_context(new_file(self.path))
            self._writer = stack.enter_context(pq.ParquetWriter(partial, provenance_schema(), compression="zstd"))
            self._files = stack.pop_all()
        return self

    def write(self, rows: Indices, array_rows: Indices, named: dict[str, Any]) -> None:
        """Write the provenance of some rows, given by their numbers in the chunk and in the whole array."""
        import pyarrow as pa

        for kind in named["kind"].to_pylist():
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        columns = {"row": int64(rows), "array_row": int64(array_rows), **named}
        self._writer.write_table(pa.table(columns, schema=provenance_schema()))

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)


@functools.cache
def provenance_schema() -> pa.Schema:
    """Return the columns of a chunk's provenance."""
    import pyarrow as pa

    numbers = [("row", pa.int64()), ("array_row", pa.int64())]
    return pa.schema([*numbers, ("kind", pa.string()), ("epoch", pa.int64()), ("spans", pa.list_(span_type()))])
