"""Run one analysis over the checkpoints or suites of its section: artifacts/analyses/<name>/."""

from __future__ import annotations

import argparse
import sys

from analyses.common.run import load, run
from llm360.code import code_sha256
from llm360.environment import use_threads
from stages._stage import ARTIFACTS, mapping, section, stage, threads

CODE = (  # what rows come from, beside the analysis itself
    "analyses/common/sources.py",
    "llm360/checkpoint.py",
    "llm360/data/chunks.py",
    "llm360/data/order.py",
    "llm360/model",
    "llm360/train/loop.py",
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--analysis", required=True, help="key of the analyses section, e.g. memorization")
    name = parser.parse_args(argv).analysis
    out = ARTIFACTS / "analyses" / name
    with stage(out):
        analysis = load(name)
        params = section(f"analyses.{name}", analysis.Params)
        if hasattr(params, "checkpoints"):  # the others read tables and never import torch
            use_threads(threads())
        rest = {k: v for k, v in mapping(f"analyses.{name}").items() if k not in ("checkpoints", "suites")}
        recipe = {"params": rest, "threads": threads(), "code": code_sha256(f"analyses/{name}.py", *CODE)}
        run(analysis, params, out, name=name, recipe=recipe)
    return 0


if __name__ == "__main__":
    sys.exit(main())
