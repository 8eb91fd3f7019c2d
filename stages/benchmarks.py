"""Build the mirror of the benchmarks' data: artifacts/benchmarks/."""

from __future__ import annotations

import argparse
import sys

from llm360.evaluation.benchmarks import BenchmarkParams, build
from stages._stage import ARTIFACTS, section, stage


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    out = ARTIFACTS / "benchmarks"
    with stage(out):
        (ARTIFACTS / "evaluation").mkdir(exist_ok=True)  # analyses depend on it, also where no task is evaluated
        build(out, section("evaluation.benchmarks", BenchmarkParams))
    return 0


if __name__ == "__main__":
    sys.exit(main())
