"""From documents to a phase's chunks, out of core: pack every part, plan the mix, write every chunk.

Each step's files appear by rename in a work folder and are kept until all is done, so a build that was killed goes on
where it was. Results depend on the parameters, the documents and the tokenizer, never on workers or their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llm360.data.arrow import strings
from llm360.data.chunking.gather import MIX, ChunkTask, read_rows, read_spans, write_chunk
from llm360.data.chunking.holdout import HoldOut, hold_out
from llm360.data.chunking.mix import Mix, Pool, epochs_of
from llm360.data.chunking.pack import PackTask, pack_part, prepare
from llm360.data.chunking.rows import rows_path, span_type, spans_path
from llm360.data.chunking.shards import create_array, shard_path, token_dtype, write_shard
from llm360.data.chunks import FORMAT, TOKENS, VALIDATION, chunk_path, provenance_path
from llm360.data.documents import input_files, parts
from llm360.data.mixture import ChunkParams, Ingredient, chunk_sizes, rows_by_kind, rows_of_all
from llm360.data.tokens.encoder import cached_encoder
from llm360.errors import DataError
from llm360.files import link_file, sha256_file, write_json
from llm360.processes import Workers
from llm360.progress import track

Counts = dict[str, Any]
Packed = dict[tuple[str, int], list[tuple[PackTask, Counts]]]  # for each kind and epoch, its parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    """What is built from what. sources: a folder of documents for each kind; work: see the module."""

    params: ChunkParams
    sources: Mapping[str, Path]
    tokenizer: Path
    work: Path
    workers: Workers

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a token."""
        return token_dtype(cached_encoder(self.tokenizer).vocab_size)

    @property
    def kinds(self) -> list[str]:
        """The kinds in the order of their names: in which order a mixture names them must not show in a byte."""
        return sorted(self.params.mixture)

    def held_out(self, kind: str) -> Path:
        """Return the path of a kind's held-out rows, without suffix."""
        return self.work / "held" / kind


def build_chunks(out: Path, build: Build) -> dict[str, Any]:
    """Write a phase's chunks into the empty folder ``out`` and return the manifest's fields.

    The caller sees to it that ``work`` was begun with the same parameters, documents and tokenizer. Raises DataError
    when a kind has too few rows for what the mixture asks of it.
    """
    build.workers.prepare(prepare, build.tokenizer)
    held = {kind: hold_out(_hold_out(build, kind), workers=build.workers) for kind in build.kinds}
    packed = _pack(build)
    mix, per_chunk = _mix(build.params, packed)
    write_json(build.work / MIX, dataclasses.asdict(mix))
    chunks = _write_chunks(build, per_chunk)
    _assemble(out, build, per_chunk)
    return {
        "format": FORMAT,
        **dataclasses.asdict(build.params),
        "rows_per_chunk": per_chunk,
        "dtype": build.dtype.name,
        "encoder": cached_encoder(build.tokenizer).name,
        "kinds": {k: _counts(packed, mix, k) | {"documents_held_out": len(held[k])} for k in build.kinds},
        "kinds_by_chunk": {k: [found.get(k, 0) for found in chunks] for k in build.kinds},
    }


def _hold_out(build: Build, kind: str) -> HoldOut:
    return HoldOut(
        folder=build.sources[kind],
        tokenizer=build.tokenizer,
        rows=build.params.validation_rows,
        row_tokens=build.params.row_tokens,
        seed=build.params.seed,
        out=build.held_out(kind),
    )


def _pack(build: Build) -> Packed:
    """Pack every kind once, and those that fill in the middle for each epoch that is needed: its rows are others."""
    packed: Packed = {}
    for epoch in range(max(i.epochs for i in build.params.mixture.values())):
        kinds = [k for k in build.kinds if epoch == 0 or _is_needed(build.params, packed, k, epoch)]
        tasks = [task for kind in kinds for task in _pack_tasks(build, kind, epoch)]
        label = f"tokenize {build.params.folder}{f', epoch {epoch + 1}' if epoch else ''}"
        done = track(build.workers.run(pack_part, tasks), label=label, total=len(tasks))
        counts = {task.out: found for task, found in done}
        packed |= {(k, epoch): [(t, counts[t.out]) for t in tasks if t.kind == k] for k in kinds}
    return packed


def _pack_tasks(build: Build, kind: str, epoch: int) -> Iterator[PackTask]:
    every, ingredient = parts(build.sources[kind]), build.params.mixture[kind]
    documents, files = sum(p.documents for p in every), input_files(build.sources[kind])
    for number, part in enumerate(every):
        yield PackTask(
            kind=kind,
            folder=build.sources[kind],
            part=part,
            documents=documents,
            files=files,
            select=ingredient.part,
            held_out=build.held_out(kind).with_suffix(".json"),
            tokenizer=build.tokenizer,
            row_tokens=build.params.row_tokens,
            seed=build.params.seed,
            epoch=epoch,
            fim=ingredient.fim,
            out=build.work / "packed" / f"{kind}-{epoch}-{number:05d}",
        )


def _is_needed(params: ChunkParams, packed: Packed, kind: str, epoch: int) -> bool:
    if params.mixture[kind].fim is None or epoch >= params.mixture[kind].epochs or (kind, epoch - 1) not in packed:
        return False
    if params.rows_per_chunk is None:
        return True
    total = sum(chunk_sizes(params, params.rows_per_chunk))
    wanted = rows_by_kind(params.mixture, total, row_tokens=params.row_tokens)
    return sum(_rows(packed[kind, e]) for e in range(epoch)) < wanted[kind]


def _rows(read: list[tuple[PackTask, Counts]]) -> int:
    return sum(counts["rows"] for _, counts in read)


def _mix(params: ChunkParams, packed: Packed) -> tuple[Mix, int]:
    """Return which rows make the phase, and the rows of a chunk."""
    have = {k: _available(k, i, packed) for k, i in params.mixture.items()}
    rows, per_chunk = {k: sum(n) for k, n in have.items()}, params.rows_per_chunk
    if per_chunk is None:
        per_chunk = rows_of_all(rows, params.mixture, params.chunks, row_tokens=params.row_tokens) // params.chunks
    if not per_chunk:
        raise DataError(f"{params.folder}: {rows} rows do not make one in each of {params.chunks} chunks; add text")
    total = sum(chunk_sizes(params, per_chunk))
    wanted = rows_by_kind(params.mixture, total, row_tokens=params.row_tokens, available=rows)
    pools = [p for k in sorted(params.mixture) for p in _pools(params, k, wanted[k], have[k], packed)]
    return Mix(seed=params.seed, phase=params.phase, pools=pools), per_chunk


def _available(kind: str, ingredient: Ingredient, packed: Packed) -> list[int]:
    """Return the rows of each epoch that may be read: the same ones again, or others that fill in other middles."""
    if ingredient.fim is None:
        return [_rows(packed[kind, 0])] * ingredient.epochs
    return [_rows(packed.get((kind, epoch), [])) for epoch in range(ingredient.epochs)]


def _pools(params: ChunkParams, kind: str, wanted: int, have: list[int], packed: Packed) -> Iterator[Pool]:
    try:
        by_epoch = epochs_of(kind, wanted, have, row_tokens=params.row_tokens)
    except DataError as error:
        raise DataError(f"{params.folder}: {error}") from error
    for epoch, rows in enumerate(by_epoch):
        read = packed.get((kind, epoch), packed[kind, 0])
        files = [str(task.out) for task, _ in read]
        yield Pool(kind=kind, epoch=epoch, files=files, rows=[c["rows"] for _, c in read], wanted=rows)


def _write_chunks(build: Build, per_chunk: int) -> list[dict[str, int]]:
    """Write every chunk that is not there yet and return the rows by kind of each."""
    digest = sha256_file(build.work / MIX)
    tasks = [
        ChunkTask(
            work=build.work,
            mix_sha256=digest,
            local=local,
            chunk=build.params.first_chunk + local,
            first=local * per_chunk,
            rows=rows,
            shard_rows=per_chunk,
            row_tokens=build.params.row_tokens,
            dtype=build.dtype.name,
        )
        for local, rows in enumerate(chunk_sizes(build.params, per_chunk))
    ]
    label = f"chunks {build.params.folder}"
    done = track(build.workers.run(write_chunk, tasks), label=label, total=len(tasks))
    counts = {task.local: found for task, found in done}
    return [counts[task.local] for task in tasks]


def _counts(packed: Packed, mix: Mix, kind: str) -> Counts:
    """Return what went in and what came out of a kind: tokens = rows_available x row tokens + those of the tails."""
    read = [counts for _, counts in packed[kind, 0]]
    tails = [tail for counts in read for tail in counts["tail"]]
    return {
        "documents": sum(c["documents"] for c in read),
        "tokens": sum(c["tokens"] for c in read),
        "rows_available": sum(c["rows"] for c in read),
        "rows": sum(p.wanted for p in mix.pools if p.kind == kind),
        "rows_by_epoch": [p.wanted for p in mix.pools if p.kind == kind],
        "tokens_dropped_tail": sum(t["tokens"] for t in tails),
        "tail": tails,
    }


def _assemble(out: Path, build: Build, per_chunk: int) -> None:
    """Bring the finished files together in ``out``; they stay in the work folder as well until it is removed."""
    params = build.params
    rows = sum(chunk_sizes(params, per_chunk))
    create_array(out / TOKENS, rows=rows, shard_rows=per_chunk, row_tokens=params.row_tokens, dtype=build.dtype)
    for local in range(params.chunks):
        for path in (chunk_path(local), provenance_path(params.first_chunk + local)):
            link_file(build.work / path, out / path)
    _write_validation(out, build)


def _write_validation(out: Path, build: Build) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    width, tokens, kinds, spans = build.params.row_tokens, [], [], []
    rows = np.arange(build.params.validation_rows)  # which hold_out made of each kind, or refused
    for kind in build.kinds:
        path = build.held_out(kind)
        tokens.append(read_rows(rows_path(path), rows, row_tokens=width, dtype=build.dtype))
        spans.append(read_spans(spans_path(path), rows))
        kinds += [kind] * len(rows)
    shape = {"rows": len(kinds), "shard_rows": len(kinds)}
    create_array(out / VALIDATION, **shape, row_tokens=width, dtype=build.dtype)
    write_shard(out / VALIDATION / shard_path(0), iter(tokens), shard_rows=shape["shard_rows"])
    schema = pa.schema([("kind", pa.string()), ("spans", pa.list_(span_type()))])
    table = pa.table({"kind": strings(kinds), "spans": pa.concat_arrays(spans)}, schema=schema)
    pq.write_table(table, out / "validation.parquet", compression="zstd")
