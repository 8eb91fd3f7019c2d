"""One part of documents packed into rows, and <name>.json with its counts, written last: present means complete.

Each part is packed for itself, so that parts may be packed anywhere and in any order; the tokens at its end that
fill no row are named.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.arrow import boolean
from llm360.data.chunking.rows import NAMED, Ids, Rows
from llm360.data.documents import Part, read_part
from llm360.data.mixture import Fim, Select
from llm360.data.tokens.encoder import Encoder, cached_encoder
from llm360.data.tokens.fim import fill_in_the_middle, fim_ids
from llm360.files import read_json, write_json

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (*NAMED, "text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackTask:
    """All that packing one part depends on. out is the path of its files without their suffix.

    documents, files: of the whole kind; held_out: a JSON list of the ids that are not trained on.
    """

    kind: str
    folder: Path
    part: Part
    documents: int
    files: int
    select: Select
    held_out: Path
    tokenizer: Path
    row_tokens: int
    seed: int
    epoch: int
    fim: Fim | None
    out: Path


def pack_part(task: PackTask) -> dict[str, Any]:
    """Pack one part and return its counts; returns what is there when it was done before."""
    done = task.out.with_suffix(".json")
    if done.is_file():
        return dict(read_json(done))
    encoder = cached_encoder(task.tokenizer)
    held_out = _held_out(task.held_out, task.held_out.stat().st_mtime_ns)
    counts = {"documents": 0, "documents_held_out": 0}
    with Rows(task.out, encoder, row_tokens=task.row_tokens) as rows:
        number = task.part.first
        for table in read_part(task.folder, task.part, columns=COLUMNS):
            numbers = np.arange(number, number + len(table))
            number += len(table)
            chosen = selected(numbers, task.part.file, task.select, documents=task.documents, files=task.files)
            held = np.array([i in held_out for i in table["id"].to_pylist()], dtype=bool)
            counts["documents"] += int((chosen & ~held).sum())
            counts["documents_held_out"] += int((chosen & held).sum())
            _add(rows, table.filter(boolean(chosen & ~held)), encoder, task)
    counts |= rows.counts()
    write_json(done, counts)
    return counts


def _add(rows: Rows, table: pa.Table, encoder: Encoder, task: PackTask) -> None:
    ids: list[Ids] = list(encoder.encode(table["text"].to_pylist()))
    plain = np.ones(len(ids), dtype=bool)
    if task.fim is not None:
        fim = fim_ids(task.fim, encoder)
        for i, document in enumerate(table["id"].to_pylist()):
            changed = fill_in_the_middle(ids[i], fim, seed=task.seed, document=document, epoch=task.epoch)
            if changed is not None:
                ids[i], plain[i] = changed, False
    rows.add(table.drop_columns(["text"]), ids, plain)


def prepare(tokenizer: Path) -> None:
    """Load what packing needs, before there is something to pack."""
    import pyarrow.parquet  # noqa: F401

    cached_encoder(tokenizer)


@functools.lru_cache(maxsize=32)
def _held_out(path: Path, _changed: int) -> frozenset[str]:
    return frozenset(read_json(path))


def selected(
    numbers: npt.NDArray[np.int64], file: int, select: Select, *, documents: int, files: int
) -> npt.NDArray[np.bool_]:
    """Return which documents, given by their numbers in the kind and that of their input file, are in a part."""
    value, total = (np.full(len(numbers), file), files) if select.endswith("_files") else (numbers, documents)
    how = select.removesuffix("_files")
    if how == "first_tenth":
        return np.asarray(value < max(total // 10, 1))
    if how in ("even", "odd"):
        return np.asarray(value % 2 == (how == "odd"))
    return np.ones(len(numbers), dtype=bool)
