"""Rows a second of the loader against memmap and HF datasets, and its share of a training step.

    python -m benchmarks.read_chunks --mb 50 --runs 5

Rows of 2,049 ids (vocabulary 32,000) for the rates; the mini model of conf/scale/mini.yaml, its rows of 257 and its
chunks of 32 rows for the share. sequential reads whole chunks in turn, as training does; random reads single rows of
any chunk. Every file is in the page cache, so this is the cost of the reader and not of a disk.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks._corpus import KIND, Corpus, build_corpus, build_tokenizer
from benchmarks._measure import show, use_cores, versions
from benchmarks._peers_read import Reader, hf_datasets, memmap, same, unverified, verified
from benchmarks._peers_tokenize import Job, chunk_params, make_chunks
from llm360.config import from_mapping
from llm360.data.chunks import ChunkReader
from llm360.data.mixture import Ingredient

MINI = Path(__file__).resolve().parent.parent / "conf" / "scale" / "mini.yaml"
SUITE = "amber-mini"
GOAL = 0.02  # the most that loading may cost of a step
SAMPLE_MB = 30.0  # text for the tokenizer of 32,000
MINI_MB = 8.0  # text for the mini chunks
PACKAGES = ("numpy", "datasets", "pyarrow", "torch", "transformers")


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    cores = use_cores(args.threads)
    with tempfile.TemporaryDirectory(prefix="llm360-read-") as name:
        folder = Path(name)
        corpus = build_corpus(folder / "corpus", megabytes=args.mb)
        result = {"versions": versions(*PACKAGES), "cores": cores, "mb": args.mb, "runs": args.runs}
        result |= rates(folder, corpus, args)
        result |= share_of_a_step(folder, args)
    print(json.dumps(result))
    return 0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=50.0, help="megabytes of text, 1,000,000 bytes each")
    parser.add_argument("--runs", type=int, default=5, help="passes over the chunks, and over the random rows")
    parser.add_argument("--random-rows", type=int, default=500, help="single rows that a pass reads")
    parser.add_argument("--threads", type=int, default=2, help="cores, and torch's threads")
    parser.add_argument("--chunks", type=int, default=40, help="chunks that the mini model trains on")
    return parser.parse_args(argv)


def open_chunks(
    folder: Path, corpus: Corpus, *, sequence_length: int, sample_mb: float, vocab_size: int, **changes: Any
) -> ChunkReader:
    """Train a tokenizer, make chunks with it, and open them."""
    tokenizer = build_tokenizer(folder / "tokenizer", corpus, vocab_size=vocab_size, sample_mb=sample_mb)
    job = Job(corpus=corpus, tokenizer=tokenizer, out=folder, workers=1, sequence_length=sequence_length)
    make_chunks(job, chunk_params(job, **changes))
    return ChunkReader(folder / "chunks")


def rates(folder: Path, corpus: Corpus, args: argparse.Namespace) -> dict[str, Any]:
    """Measure every reader in turn, print the table and return rows a second."""
    sample_mb = min(args.mb, SAMPLE_MB)
    chunks = open_chunks(folder / "long", corpus, sequence_length=2048, sample_mb=sample_mb, vocab_size=32_000)
    readers = [verified(chunks), unverified(chunks), memmap(chunks, folder), hf_datasets(chunks, folder)]
    same(readers, chunk=chunks.manifest["chunks"] - 1, row=chunks.rows(0) - 1)
    sequential: dict[str, list[float]] = {reader.name: [] for reader in readers}
    single: dict[str, list[float]] = {reader.name: [] for reader in readers}
    for run in range(args.runs):
        for reader in readers:
            sequential[reader.name].append(in_turn(reader, chunks))
            single[reader.name].append(at_random(reader, chunks, args.random_rows, seed=run))
    return summary(chunks, readers, sequential, single)


def in_turn(reader: Reader, chunks: ChunkReader) -> float:
    """Return rows a second of whole chunks, one after the other."""
    count: int = chunks.manifest["chunks"]
    seconds = timed(lambda: [reader.chunk(chunk).sum() for chunk in range(count)])
    return count * chunks.rows(0) / seconds


def at_random(reader: Reader, chunks: ChunkReader, rows: int, *, seed: int) -> float:
    """Return rows a second of single rows anywhere; the same ones for every reader."""
    draw = random.Random(seed)
    places = [(draw.randrange(chunks.manifest["chunks"]), draw.randrange(chunks.rows(0))) for _ in range(rows)]
    return rows / timed(lambda: [reader.row(chunk, row).sum() for chunk, row in places])


def timed(function: Callable[[], Any]) -> float:
    """Return the wall seconds of a call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def summary(
    chunks: ChunkReader, readers: list[Reader], sequential: dict[str, list[float]], single: dict[str, list[float]]
) -> dict[str, Any]:
    found = {
        reader.name: {
            "sequential_rows_per_second": statistics.median(sequential[reader.name]),
            "random_rows_per_second": statistics.median(single[reader.name]),
            "bytes_on_disk": reader.bytes,
        }
        for reader in readers
    }
    rows = [
        [n, *(f"{v:,.0f}" for v in list(f.values())[:2]), f"{f['bytes_on_disk'] / 1e6:.1f}"] for n, f in found.items()
    ]
    width, count = chunks.manifest["sequence_length"] + 1, chunks.manifest["chunks"]
    title = f"{count} chunks of {chunks.rows(0)} rows of {width} ids, all in the page cache, median"
    show(title, ["", "sequential rows/s", "random rows/s", "MB on disk"], rows)
    return {"chunks": count, "rows_per_chunk": chunks.rows(0), "row_tokens": width, "readers": found}


def share_of_a_step(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train the mini model over some chunks and return what reading them took of it."""
    mini = yaml.safe_load(MINI.read_text(encoding="utf-8"))
    corpus = build_corpus(folder / "mini-corpus", megabytes=MINI_MB)
    chunks = open_chunks(
        folder / "mini",
        corpus,
        sample_mb=mini["tokenizers"][SUITE]["sample_mb"],
        vocab_size=mini["tokenizers"][SUITE]["vocab_size"],
        chunks=args.chunks,
        mixture={KIND: Ingredient(weight=1.0, part="all", epochs=1)},
        **{name: mini["chunks"][SUITE][name] for name in ("sequence_length", "rows_per_chunk", "seed")},
    )
    loading, training, steps = train_mini(chunks, mini, threads=args.threads)
    share = sum(loading[1:]) / sum(training[1:])  # the first chunk pays for what both do only once
    found = {
        "load_ms_per_chunk": 1e3 * statistics.median(loading[1:]),
        "step_ms": 1e3 * statistics.median(training[1:]) / steps,
    }
    show(f"the mini model, {steps} steps a chunk", ["", "ms"], [[name, f"{ms:.2f}"] for name, ms in found.items()])
    print(f"loading over training: {share:.2%}, goal: below {GOAL:.0%}, {'met' if share < GOAL else 'NOT met'}")
    return {"mini": found | {"loading_over_training": share, "goal": GOAL}}


def train_mini(chunks: ChunkReader, mini: dict[str, Any], *, threads: int) -> tuple[list[float], list[float], int]:
    """Return for each chunk the seconds of reading it and of training on it, and the steps of one chunk."""
    from llm360.environment import use_threads
    from llm360.model.build import build_model
    from llm360.train.batches import batches
    from llm360.train.distributed import join
    from llm360.train.loop import train_steps
    from llm360.train.optimizer import build_optimizer
    from llm360.train.params import PhaseParams
    from llm360.train.trainer import Trainer

    use_threads(threads)
    params = from_mapping(PhaseParams, {**mini["pretrain"][SUITE], "branch": None}, where=f"{MINI}: pretrain.{SUITE}")
    spec = mini["models"][SUITE]
    model = build_model(spec["family"], spec["config"], seed=spec["seed"]).train()
    loading, training, step = [], [], 0
    with join() as world:
        trainer = Trainer(model, build_optimizer(model, params.optimizer), world, params.compute.precision)
        for chunk in range(chunks.manifest["chunks"]):
            started = time.perf_counter()
            rows = list(batches(chunks, chunk, params, world, begin=0))
            loading.append(time.perf_counter() - started)
            measured = list(train_steps(trainer, rows, params, first_step=step))
            training.append(sum(m.seconds for m in measured))
            step += len(measured)
    return loading, training, len(measured)


if __name__ == "__main__":
    sys.exit(main())
