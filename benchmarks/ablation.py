"""Three faults that LLM360's paper names, planted into our own training and set against it, with paired seeds.

    python -m benchmarks.ablation

- bf16_checkpoints: weights saved in bf16 and resumed from there, at every chunk (Amber's early checkpoints).
- adamw_restarted: at a few resumes AdamW begins anew, without its moments (Amber's, at each of its resumes).
- rope: rotary positions in bf16, once the inverse frequencies alone and once the angles (position x frequency) too, as
  a whole model in bf16 computes them; in training, and in the evaluation of a model that was trained in fp32.
Each arm and ours have the same first weights and the same batches, so the figures are the differences of pairs: their
mean over the seeds and its standard error. Tokens are bytes of the installed text. A resume rounds or clears the state
in memory, which is what saving and loading it does (tests/llm360/test_checkpoint.py). Figures go to docs/figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._ablation_rope import rope_faults
from benchmarks._ablation_state import state_faults
from benchmarks._measure import use_cores, versions
from benchmarks._small import print_result, write_corpus
from llm360.files import sha256_file


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=6, help="pairs for bf16_checkpoints and adamw_restarted, 2 or more"
    )
    parser.add_argument("--rope-seeds", type=int, default=3, help="pairs for rope, 2 or more")
    parser.add_argument("--workers", type=int, default=2, help="processes, and cores for all of them")
    args = parser.parse_args(argv)
    if min(args.seeds, args.rope_seeds) < 2:
        parser.error("--seeds, --rope-seeds: read less than 2, which give no standard error; give 2 or more")
    use_cores(args.workers)
    result: dict[str, Any] = {"versions": versions("torch", "transformers")}
    result |= {"seeds": args.seeds, "rope_seeds": args.rope_seeds}
    with tempfile.TemporaryDirectory(prefix="llm360-ablation-") as name:
        corpus = write_corpus(Path(name) / "bytes")
        result["corpus_sha256"] = sha256_file(corpus)
        result["state"] = state_faults(corpus, seeds=args.seeds, workers=args.workers)
        result["rope"] = rope_faults(corpus, seeds=args.rope_seeds, workers=args.workers)
    print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
