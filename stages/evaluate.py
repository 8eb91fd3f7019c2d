"""Evaluate the chosen checkpoints of every suite on one task: artifacts/evaluation/<task>/."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import registry
from llm360.code import code_sha256
from llm360.environment import use_threads
from llm360.evaluation.sweep import EvaluationParams, Subject, sweep
from llm360.files import manifest_sha256
from stages._stage import ARTIFACTS, persistent, section, stage, threads


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True, help="key of the evaluation.tasks section")
    args = parser.parse_args(argv)
    out = ARTIFACTS / "evaluation" / args.task
    with stage(out):
        params = section("evaluation", EvaluationParams)
        use_threads(threads())
        benchmark = params.benchmark(args.task, benchmarks=ARTIFACTS / "benchmarks")
        chosen = [(suite, i) for suite, indices in sorted(params.checkpoints.items()) for i in sorted(indices)]
        subjects = [_subject(registry.checkpoint(suite, ckpt=i)) for suite, i in chosen]
        persistent(out, {"threads": threads(), "code": code_sha256("llm360/evaluation")})
        sweep(out, subjects, benchmark)
    return 0


def _subject(checkpoint: Any) -> Subject:
    return Subject(
        suite=checkpoint.suite,
        ckpt=checkpoint.ckpt,
        tokens_seen=checkpoint.tokens_seen,
        manifest_sha256=manifest_sha256(checkpoint.path),
        load=lambda: (checkpoint.model(), checkpoint.tokenizer()),
    )


if __name__ == "__main__":
    sys.exit(main())
