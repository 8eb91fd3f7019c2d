"""Documents held out for validation: the same of a kind for every phase of a suite, and rows of nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llm360.data.chunking.pack import COLUMNS
from llm360.data.chunking.rows import Rows
from llm360.data.documents import Part, parts, read_part
from llm360.data.tokens.encoder import cached_encoder
from llm360.errors import DataError
from llm360.files import read_json, write_json
from llm360.processes import Workers

if TYPE_CHECKING:
    import pyarrow as pa

USUAL_BYTES_PER_TOKEN = 8  # more than most texts give: bounds how many documents are looked at first
ALONE = 64  # parts whose ids are read sooner here than by workers
Candidate = tuple[str, str, int, int, int]  # hash, document id, bytes, index of the part, table in the part


@dataclasses.dataclass(frozen=True, kw_only=True)
class HoldOutTask:
    """The candidates of one part: the first of its documents in the order of a hash, up to ``bytes``."""

    folder: Path
    part: Part
    index: int
    seed: int
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class HoldOut:
    """One kind's held-out documents. out is the path of their files without a suffix (see rows.py)."""

    folder: Path
    tokenizer: Path
    rows: int
    row_tokens: int
    seed: int
    out: Path


def hold_out(task: HoldOut, *, workers: Workers) -> list[str]:
    """Write the held-out rows and the ids of their documents (<out>.json), and return the ids.

    Documents are taken in the order of a hash of (seed, id) until their tokens fill ``rows`` rows. Raises DataError
    when that leaves nothing to train on. What was done before is returned.
    """
    if (done := task.out.with_suffix(".json")).is_file():
        return list(read_json(done))
    every = parts(task.folder)
    bytes_per_token = USUAL_BYTES_PER_TOKEN
    ids, full = _taken(task, every, bytes_per_token, workers)
    while not full and len(ids) < sum(part.documents for part in every):
        bytes_per_token *= 8  # texts of rules or blanks have hundreds of bytes a token
        ids, full = _taken(task, every, bytes_per_token, workers)
    if not full or len(ids) == sum(part.documents for part in every):
        raise DataError(
            f"{task.folder}: {len(ids)} documents, none left after validation; add text, or lower validation_rows "
            f"({task.rows} rows of {task.row_tokens} tokens)"
        )
    write_json(done, ids)
    return ids


def _taken(task: HoldOut, every: Sequence[Part], bytes_per_token: int, workers: Workers) -> tuple[list[str], bool]:
    """Write the rows of the first documents; return their ids, and whether they fill the rows."""
    size = task.rows * task.row_tokens * bytes_per_token
    tasks = [
        HoldOutTask(folder=task.folder, part=part, index=index, seed=task.seed, bytes=size)
        for index, part in enumerate(every)
    ]
    found = workers.run(candidates, tasks) if len(tasks) > ALONE else ((t, candidates(t)) for t in tasks)
    first = _first((row for _, rows in found for row in rows), size)
    return _write(task, every, first)


def candidates(task: HoldOutTask) -> list[Candidate]:
    """Return a part's candidates; only ids and sizes are read."""
    rows: list[Candidate] = []
    for group, table in enumerate(read_part(task.folder, task.part, columns=("id", "bytes"))):
        named = zip(table["id"].to_pylist(), table["bytes"].to_pylist(), strict=True)
        rows += [(_hash(task.seed, name), name, size, task.index, group) for name, size in named]
        rows = _first(rows, task.bytes)
    return rows


def _hash(seed: int, document: str) -> str:
    return hashlib.sha256(f"{seed}/{document}".encode()).hexdigest()


def _first(rows: Iterable[Candidate], size: int) -> list[Candidate]:
    """Return the first in the order of their hash that hold ``size`` bytes, the one that passes it included."""
    ordered = sorted(rows)
    before = np.cumsum([0, *(row[2] for row in ordered)])[:-1]
    return ordered[: int(np.searchsorted(before, size))]


def _write(task: HoldOut, every: Sequence[Part], first: Sequence[Candidate]) -> tuple[list[str], bool]:
    """Encode the candidates in their order, more at a time each time, until they hold enough tokens."""
    encoder, wanted = cached_encoder(task.tokenizer), task.rows * task.row_tokens
    taken: list[str] = []
    with Rows(task.out, encoder, row_tokens=task.row_tokens) as rows:
        while rows.tokens < wanted and len(taken) < len(first):
            batch = first[len(taken) : 2 * len(taken) + 8]
            texts = _texts(task, every, batch)
            for document in (row[1] for row in batch):
                if rows.tokens < wanted:
                    named = texts[document]
                    encoded = encoder.encode(named["text"].to_pylist())
                    rows.add(named.drop_columns(["text"]), encoded, np.ones(1, dtype=bool))
                    taken.append(document)
    return taken, rows.tokens >= wanted


def _texts(task: HoldOut, every: Sequence[Part], batch: Sequence[Candidate]) -> Mapping[str, pa.Table]:
    """Return a table of one row for each candidate; only the tables that hold one are read."""
    found: dict[str, pa.Table] = {}
    ids = {row[1] for row in batch}
    for index in sorted({row[3] for row in batch}):
        groups = sorted({row[4] for row in batch if row[3] == index})
        for table in read_part(task.folder, every[index], columns=COLUMNS, groups=groups):
            named = enumerate(table["id"].to_pylist())
            found |= {name: table.slice(i, 1) for i, name in named if name in ids}
    return found
