"""Data: where a suite's tokens come from, which documents are double, and which evaluation items it has seen.

One pass over the chunks counts sources and looks for items; the chi-square test says whether every chunk is drawn
from the mixture alike. Undisclosed data hides bias and leakage, so what is found is named: documents, items, rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from analyses.common import data_figures, data_tables
from analyses.common.items import benchmark_items
from analyses.common.sources import readers
from llm360.data.checks.contamination import Contamination, ContaminationParams
from llm360.data.checks.duplicates import DuplicateParams, find_duplicates
from llm360.data.chunks import ChunkReader
from llm360.errors import IntegrityError
from llm360.files import manifest_sha256
from llm360.progress import track
from registry import Suite
from registry.workspace import current_workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llm360.data.tokens.encoder import Encoder

CAPTIONS = {
    "sources": "Share of each kind in the rows of every chunk. Dashed: the mixture, which each chunk follows but for "
    "chance; the chi-square test below says how well.",
    "contamination": "Share of each task's items of which any n-gram stands in the training rows (pale), and of which "
    "enough do to count as seen (strong).",
}
BATCH = 4096  # rows decoded at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """suites are pretrained ones of this workspace; tasks are evaluation tasks whose items are looked for."""

    suites: list[str]
    tasks: list[str]
    contamination: ContaminationParams
    duplicates: DuplicateParams


def rows(suite: Suite, params: Params) -> list[dict[str, Any]]:
    """Return a row per finding, told apart by ``check``; ``analyses/common/data_tables.py`` has the columns of each."""
    artifacts, phases = current_workspace().artifacts, readers(suite)
    items = benchmark_items(artifacts / "benchmarks", params.tasks)
    search = Contamination(items, params.contamination)
    found = [row for reader in phases for row in _phase(reader, artifacts, search)]
    found += _duplicates(artifacts, phases, params.duplicates)
    found += [{"check": "item", **row} for row in search.items().to_dicts()]
    found += [{"check": "row", **row} for row in search.rows().to_dicts()]
    return [{"suite": suite.name, **row} for row in found]


def _phase(reader: ChunkReader, artifacts: Path, search: Contamination) -> Iterator[dict[str, Any]]:
    """Read a phase's chunks once: its mixture, rows by kind of each chunk, tokens by source; items go to ``search``."""
    from llm360.data.tokens.encoder import encoder_of

    facts = reader.manifest
    encoder = encoder_of(facts, artifacts / "tokenizers" / facts["tokenizer"])
    phase, first = facts["phase"], facts["first_chunk"]
    for kind, counts in facts["kinds_by_chunk"].items():
        total, weight = sum(counts), facts["mixture"][kind]["weight"]
        tokens = total * (facts["sequence_length"] + 1)
        yield {"check": "mixture", "phase": phase, "kind": kind, "rows": total, "tokens": tokens, "weight": weight}
        for chunk, count in enumerate(counts, start=first):
            yield {"check": "chunk", "phase": phase, "chunk": chunk, "kind": kind, "rows": count}
    sources, chunks = [], range(first, first + facts["chunks"])
    for chunk in track(chunks, label=f"{facts['folder']}: chunks", total=len(chunks)):
        sources.append(by_source(reader.provenance(chunk)))
        for number, tokens_RT in enumerate(reader.blocks(chunk, BATCH)):
            search.add(texts(encoder, tokens_RT), chunk=chunk, first_row=number * BATCH)
    summed = pl.concat(sources).group_by("kind", "source").agg(pl.col("tokens").sum()).sort("kind", "source")
    yield from ({"check": "source", "phase": phase, **row} for row in summed.to_dicts())


def by_source(provenance: pl.DataFrame) -> pl.DataFrame:
    """Return the tokens of each kind and source in a chunk's rows, end tokens included."""
    spans = provenance.select("kind", "spans").explode("spans").unnest("spans")
    return spans.group_by("kind", "source").agg(tokens=(pl.col("end") - pl.col("start")).sum())


def texts(encoder: Encoder, tokens_RT: npt.NDArray[Any]) -> list[str]:
    """Return the text of each row of [R, T] tokens; special tokens part its documents, as a line of its own would.

    A character that the row's border cuts is replaced.
    """
    special = np.zeros(encoder.vocab_size, dtype=bool)
    special[list(encoder.special_tokens.values())] = True
    return [_text(encoder, row, np.flatnonzero(special[row])) for row in tokens_RT]


def _text(encoder: Encoder, row: npt.NDArray[Any], marks: npt.NDArray[np.int64]) -> str:
    bounds = zip([0, *(marks + 1)], [*marks, len(row)], strict=True)
    return "\n".join(encoder.decode_bytes(row[a:b]).decode(errors="replace") for a, b in bounds if b > a)


def _duplicates(artifacts: Path, phases: list[ChunkReader], params: DuplicateParams) -> Iterator[dict[str, Any]]:
    """Seek duplicates in all documents of the suite's kinds, whether or not its rows came from them."""
    folders = {k: _source(artifacts, k, p) for p in phases for k in p.manifest["mixture"]}
    found = find_duplicates(folders, params)
    counts = found.documents.group_by("kind").agg(documents=pl.len(), empty=pl.col("empty").sum()).sort("kind")
    yield from ({"check": "documents", **row} for row in counts.to_dicts())
    named = found.clusters.rename({"check": "how"})
    yield from ({"check": "cluster", **row} for row in named.to_dicts())


def _source(artifacts: Path, kind: str, reader: ChunkReader) -> Path:
    """Return a kind's documents; raises IntegrityError when they are not those that the chunks were made from."""
    folder, made_from = artifacts / "sources" / kind, reader.manifest["sources"][kind]
    if manifest_sha256(folder) != made_from:
        raise IntegrityError(
            f"{folder}: its manifest's sha256 is {manifest_sha256(folder)}, expected {made_from}, from which "
            f"{reader.folder} was made; build one of them anew: dvc repro"
        )
    return folder


def summary(frame: pl.DataFrame) -> dict[str, float]:
    """Return, per suite: the share of code, duplicates, items hit per task, and p of the chi-square test."""
    numbers: dict[str, float] = {f"{suite}/code_share": share for suite, share in data_tables.code_share(frame).items()}
    doubles = data_tables.duplicates(frame).group_by("suite", maintain_order=True).agg(pl.col("exact", "near").sum())
    for suite, exact, near in doubles.rows():
        numbers |= {f"{suite}/duplicates/exact": exact, f"{suite}/duplicates/near": near}
    for row in data_tables.contamination(frame).to_dicts():
        numbers[f"{row['suite']}/contamination/{row['task']}/items_hit"] = row["hit"]
    for row in data_tables.chi_squares(frame).group_by("suite", maintain_order=True).last().to_dicts():
        numbers[f"{row['suite']}/chi_square/p"] = row["p"]
    return numbers


def plots(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the tables of all checks."""
    return {
        "tokens": data_tables.tokens(frame),
        "sources": data_tables.table(frame, "source"),
        "chunks": data_tables.table(frame, "chunk"),
        "chi_square": data_tables.chi_squares(frame),
        "duplicates": data_tables.duplicates(frame),
        "clusters": data_tables.table(frame, "cluster"),
        "contamination": data_tables.contamination(frame),
        "contaminated": data_tables.contaminated(frame),
    }


def figures(frame: pl.DataFrame, params: Params) -> dict[str, Figure]:
    """Return, per suite, the kinds in each chunk and the contamination of each task."""
    return {
        f"{what}-{suite}": draw(part)
        for what, draw in (("sources", data_figures.sources), ("contamination", data_figures.contamination))
        for (suite,), part in frame.group_by("suite", maintain_order=True)
    }
