"""Finetune a base checkpoint on instruction data: checkpoint and metrics of <suite> (amber-chat-mini)."""

from __future__ import annotations

import argparse
import sys

import registry
from llm360.environment import use_threads
from llm360.finetune.outcome import Start, chat, require_length, write_suite
from llm360.finetune.recipe import SftParams
from stages._stage import ARTIFACTS, section, stage, threads


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True, help="key of the sft section")
    args = parser.parse_args(argv)
    out = ARTIFACTS / "checkpoints" / args.suite
    with stage(out):
        params = section(f"sft.{args.suite}", SftParams)
        use_threads(threads())
        base = registry.checkpoint(params.base.suite, ckpt=params.base.ckpt)
        start = Start(base=params.base, folder=base.path, model=base.model(), tokenizer=base.tokenizer())
        require_length(start, params.sft)
        instructions = ARTIFACTS / "instructions" / params.instructions
        write_suite(
            chat(start, instructions, params),
            suite=args.suite,
            start=start,
            instructions=instructions,
            params=params,
            checkpoint_folder=out,
            metrics_folder=ARTIFACTS / "metrics" / args.suite,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
