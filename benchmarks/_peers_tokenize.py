"""What ``benchmarks.tokenize`` measures: datatrove, a ``datasets.map`` pipeline, the bare encoder, and this project.

Each contender is a function of a Job that runs in a process of its own and returns what it Made. Its clock begins
after its imports and ends when its files are whole; the workers that it starts are on the clock.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks._corpus import KIND, Corpus, read_texts
from llm360.data.chunking.build import Build, build_chunks
from llm360.data.mixture import ChunkParams, Ingredient
from llm360.files import write_manifest
from llm360.processes import Workers

EOS = "</s>"
DATATROVE = "datatrove[io,processing]==0.10.1"
CHUNK_MB = 12.5  # of text in one of our chunks, the same for every size of corpus


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What every contender gets. out is an empty folder; workers are processes."""

    corpus: Corpus
    tokenizer: Path
    out: Path
    workers: int
    sequence_length: int

    @property
    def row_tokens(self) -> int:
        """Tokens of a row: a sequence and the token after it."""
        return self.sequence_length + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """Tokens that were written (or, by the bare encoder, made) and the wall seconds that took."""

    tokens: int
    seconds: float


def datatrove(job: Job) -> Made:
    """Tokenize and shuffle as datatrove's example ``tokenize_from_hf_to_s3.py`` does, with one task a worker.

    Every setting is its default: other batch sizes were not faster (docs/benchmarks.md).
    """
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.tokens import DocumentTokenizerMerger

    started = time.perf_counter()
    logs, name = job.out / "logs", "corpus"
    tasks, merged = str(job.out / "tasks"), str(job.out / "merged")
    merge = DocumentTokenizerMerger(tasks, merged, save_filename=name, seed=1, progress=False)
    every = {"tasks": job.workers, "workers": job.workers}
    LocalPipelineExecutor(_datatrove_steps(job, tasks, name), logging_dir=str(logs / "tokenize"), **every).run()
    LocalPipelineExecutor([merge], tasks=1, logging_dir=str(logs / "merge")).run()
    seconds = time.perf_counter() - started
    return Made(tokens=sum(p.stat().st_size for p in Path(merged).glob("*.ds")) // 2, seconds=seconds)  # uint16


def _datatrove_steps(job: Job, out: str, name: str) -> list[Any]:
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    tokenizer = DocumentTokenizer(
        out,
        tokenizer_name_or_path=str(job.tokenizer / "tokenizer.json"),
        save_filename=name,
        eos_token=EOS,
        seed=1,
    )
    return [JsonlReader(str(job.corpus.jsonl)), tokenizer]


def datasets_map(job: Job) -> Made:
    """Encode document by document with ``Dataset.map``, join, cut into rows and write them as lines of JSON.

    These are the steps of LLM360's published script: an end token after each document, rows of one length and what
    is over dropped, ``token_ids`` and ``source`` in each line. It does not shuffle.
    """
    from datasets import load_dataset

    from llm360.data.tokens.tokenizer import load_tokenizer

    started = time.perf_counter()
    files = sorted(map(str, job.corpus.jsonl.iterdir()))
    data = load_dataset("json", data_files=files, split="train", cache_dir=str(job.out / "cache"))
    options = {"remove_columns": data.column_names, "num_proc": job.workers}
    encoded = data.map(_encode_one, fn_kwargs={"tokenizer": load_tokenizer(job.tokenizer)}, **options)
    documents = (ids for batch in encoded.iter(batch_size=100) for ids in batch["input_ids"])
    tokens = _write_rows(job.out / "train.jsonl", _cut(documents, job.row_tokens))
    return Made(tokens=tokens, seconds=time.perf_counter() - started)


def _encode_one(document: dict[str, Any], tokenizer: Any) -> dict[str, list[int]]:
    return {"input_ids": tokenizer(document["text"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]}


def _cut(documents: Iterable[list[int]], row_tokens: int) -> Iterator[list[int]]:
    stream: list[int] = []
    for ids in documents:
        stream += ids
        whole = len(stream) // row_tokens * row_tokens
        yield from (stream[start : start + row_tokens] for start in range(0, whole, row_tokens))
        stream = stream[whole:]


def _write_rows(path: Path, rows: Iterable[list[int]]) -> int:
    tokens = 0
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({"token_ids": row, "source": KIND}) + "\n")
            tokens += len(row)
    return tokens


def bare_encoder(job: Job) -> Made:
    """Encode the same texts from memory in as many processes and do nothing with the ids.

    The start of the processes, the reading and the loading of the encoder are not on the clock: it runs from when
    all are ready to when the last has ended.
    """
    context = multiprocessing.get_context("spawn")
    tasks = [(job, worker) for worker in range(job.workers)]
    with context.Pool(job.workers, initializer=_meet_at, initargs=(context.Barrier(job.workers),)) as pool:
        found = pool.map(_encode_share, tasks, chunksize=1)  # none gets two: each waits for the others
    seconds = max(end for _, _, end in found) - min(start for _, start, _ in found)
    return Made(tokens=sum(tokens for tokens, _, _ in found) + job.corpus.count, seconds=seconds)


_barrier: Any = None


def _meet_at(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - a barrier reaches a worker only when the worker starts
    _barrier = barrier


def _encode_share(task: tuple[Job, int]) -> tuple[int, float, float]:
    from llm360.data.tokens.encoder import load_encoder

    job, worker = task
    encoder = load_encoder(job.tokenizer)
    batches = list(read_texts(job.corpus, worker=worker, workers=job.workers))
    encoder.encode(batches[0][:10])
    _barrier.wait()
    started = time.perf_counter()
    tokens = sum(len(ids) for batch in batches for ids in encoder.encode(batch))
    return tokens, started, time.perf_counter()


def ours(job: Job) -> Made:
    """Make chunks: pack with provenance, shuffle over the whole corpus out of core, compress, hash every file."""
    started = time.perf_counter()
    fields = make_chunks(job, chunk_params(job))
    return Made(tokens=fields["kinds"][KIND]["tokens"], seconds=time.perf_counter() - started)


def make_chunks(job: Job, params: ChunkParams) -> dict[str, Any]:
    """Make the corpus' chunks in ``<out>/chunks`` and return the manifest's fields."""
    out = job.out / "chunks"
    out.mkdir()
    with Workers(job.workers) as pool:
        build = Build(
            params=params,
            sources={KIND: job.corpus.documents},
            tokenizer=job.tokenizer,
            work=job.out / "work",
            workers=pool,
        )
        fields = build_chunks(out, build)
    write_manifest(out, fields)
    return fields


def chunk_params(job: Job, **changes: Any) -> ChunkParams:
    """Return how the corpus becomes chunks: all of it, CHUNK_MB of text in each; ``changes`` replace fields."""
    mixture = {KIND: Ingredient(weight=None, part="all", epochs=1)}
    params = ChunkParams(
        suite="benchmark",
        phase="pretrain",
        folder="benchmark",
        tokenizer="benchmark",
        sequence_length=job.sequence_length,
        first_chunk=0,
        chunks=max(1, round(job.corpus.bytes / (CHUNK_MB * 1e6))),
        rows_per_chunk=None,
        validation_rows=16,
        seed=1,
        mixture=mixture,
    )
    return dataclasses.replace(params, **changes)
