"""Tokens a second of four ways from text to tokens, and the memory that ours takes for three sizes of corpus.

    python -m benchmarks.tokenize --mb 100 --runs 3

Same corpus, same tokenizer (byte-level BPE of 32,000, trained on the corpus), same cores:
  ours           Parquet documents -> packed rows with provenance -> global shuffle out of core -> chunks -> hashes
  datatrove      JSON lines -> DocumentTokenizer, shuffled by document -> DocumentTokenizerMerger, shuffled again
  datasets_map   JSON lines -> Dataset.map, document by document -> joined, cut -> JSON lines; no shuffle
  bare_encoder   our encoder over texts in memory; start, reading and writing left out
Runs are interleaved and the median counts. Rates are the corpus' tokens, end tokens included, over wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import _peers_tokenize as peers
from benchmarks._corpus import Corpus, build_corpus, build_tokenizer
from benchmarks._measure import Memory, in_fresh_process, require, show, use_cores, versions
from benchmarks._peers_tokenize import Job, Made
from llm360.progress import say

CONTENDERS = {
    "ours": peers.ours,
    "datatrove": peers.datatrove,
    "datasets_map": peers.datasets_map,
    "bare_encoder": peers.bare_encoder,
}
MEMORY = "memory"
GOALS = {"datatrove": 2.0, "datasets_map": 3.0, "bare_encoder": 0.85}  # the least of ours over theirs
FLAT = 0.15  # the most that peak memory may grow from the smallest to the largest corpus
VOCAB_SIZE, SAMPLE_MB, SEQUENCE_LENGTH = 32_000, 30.0, 2048
PACKAGES = ("datatrove", "datasets", "tokenizers", "tiktoken", "transformers", "pyarrow", "zarr", "numpy")
SAME, HELD_OUT = 0.01, 100_000  # contenders may differ by this share and these tokens, which ours holds out


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    names = [name for name in CONTENDERS if name in args.only]
    if "datatrove" in names:
        require("datatrove", peers.DATATROVE)
    cores = use_cores(args.workers)
    result: dict[str, Any] = {"versions": versions(*PACKAGES), "cores": cores, "runs": args.runs}
    with tempfile.TemporaryDirectory(prefix="llm360-tokenize-") as name:
        folder = Path(name)
        corpus = build_corpus(folder / "corpus", megabytes=args.mb)
        build_tokenizer(folder / "tokenizer", corpus, vocab_size=VOCAB_SIZE, sample_mb=min(SAMPLE_MB, args.mb))
        result |= {"mb": args.mb, "documents": corpus.count, "corpus_sha256": corpus.sha256}
        if names:
            result |= speed(folder, corpus, names, args)
        if MEMORY in args.only:
            result |= memory(folder, args)
    print(json.dumps(result))
    return 0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=100.0, help="megabytes of text, 1,000,000 bytes each")
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender")
    parser.add_argument("--workers", type=int, default=2, help="processes of each contender, and cores for all of them")
    parser.add_argument("--memory-mb", type=float, nargs="+", default=[25.0, 100.0, 400.0], help="corpora for memory")
    every = [*CONTENDERS, MEMORY]
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="what to measure")
    return parser.parse_args(argv)


def speed(folder: Path, corpus: Corpus, names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Run the contenders in turn, print the table and return rates and ratios."""
    made: dict[str, list[Made]] = {name: [] for name in names}
    for run in range(args.runs):
        for name in names:
            found, _ = measure(name, folder, corpus, args.workers)
            made[name].append(found)
            say(f"run {run + 1} of {args.runs}: {name} {found.seconds:.1f} s")
    tokens = same_tokens(made)
    rates = {name: [tokens / run.seconds for run in runs] for name, runs in made.items()}
    median = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {name: median["ours"] / median[name] for name in GOALS if "ours" in median and name in median}
    show_speed(f"{args.mb:g} MB, {tokens:,} tokens, {args.workers} processes, median of {args.runs}", rates, ratios)
    return {"tokens": tokens, "tokens_per_second": median, "every_run": rates, "ours_over": ratios, "goals": GOALS}


def measure(name: str, folder: Path, corpus: Corpus, workers: int) -> tuple[Made, Memory]:
    """Run one contender once, in an empty folder that is removed after it."""
    out = folder / "out"
    out.mkdir()
    job = Job(corpus=corpus, tokenizer=folder / "tokenizer", out=out, workers=workers, sequence_length=SEQUENCE_LENGTH)
    try:
        return in_fresh_process(CONTENDERS[name], job)
    finally:
        shutil.rmtree(out)


def same_tokens(made: dict[str, list[Made]]) -> int:
    """Return the corpus' tokens; ends when a contender made another number, so did other work."""
    counts = {name: runs[0].tokens for name, runs in made.items()}
    tokens = max(counts.values())
    if other := [name for name, found in counts.items() if found < (1 - SAME) * tokens - HELD_OUT]:
        raise SystemExit(f"{other[0]} made {counts[other[0]]:,} tokens, expected about {tokens:,}: {counts}")
    return tokens


def show_speed(title: str, rates: dict[str, list[float]], ratios: dict[str, float]) -> None:
    rows = [
        [
            name,
            f"{statistics.median(found) / 1e6:.3f}",
            f"{min(found) / 1e6:.3f} - {max(found) / 1e6:.3f}",
            f"{ratios[name]:.2f}" if name in ratios else "",
            verdict(ratios[name] >= GOALS[name], f">= {GOALS[name]}") if name in ratios else "",
        ]
        for name, found in rates.items()
    ]
    show(title, ["", "million tokens/s", "slowest - fastest run", "ours over it", "goal"], rows)


def memory(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run ours over each size of corpus, print the table and return the peaks in MB."""
    peaks: dict[float, Memory] = {}
    for size in args.memory_mb:
        corpus = build_corpus(folder / f"memory-{size:g}", megabytes=size)
        _, peaks[size] = measure("ours", folder, corpus, args.workers)
        shutil.rmtree(folder / f"memory-{size:g}")
    resident = {f"{size:g}": peak.resident / 1e6 for size, peak in peaks.items()}
    anonymous = {f"{size:g}": peak.anonymous / 1e6 for size, peak in peaks.items()}
    growth = max(resident.values()) / min(resident.values()) - 1
    rows = [[f"{size} MB of text", f"{resident[size]:.0f}", f"{anonymous[size]:.0f}"] for size in resident]
    show("peak memory of ours in MB, main process and workers", ["", "resident", "without file-backed pages"], rows)
    print(f"largest over smallest: +{growth:.1%}, {verdict(growth <= FLAT, f'goal: at most +{FLAT:.0%}')}")
    return {"peak_resident_mb": resident, "peak_anonymous_mb": anonymous, "memory_growth": growth}


def verdict(met: bool, goal: str) -> str:
    return f"{goal}, {'met' if met else 'NOT met'}"


if __name__ == "__main__":
    sys.exit(main())
