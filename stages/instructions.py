"""Make instruction and preference data from the sources: artifacts/instructions/<suite>/."""

from __future__ import annotations

import argparse
import sys

import polars as pl

from llm360.data.documents import KINDS, read_documents
from llm360.errors import SourceError
from llm360.files import manifest_sha256
from llm360.finetune.instructions import InstructionParams, make_instructions, write_instructions
from stages._stage import ARTIFACTS, section, stage


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True, help="key of the instructions section")
    args = parser.parse_args(argv)
    out, sources = ARTIFACTS / "instructions" / args.suite, ARTIFACTS / "sources"
    with stage(out):
        params = section(f"instructions.{args.suite}", InstructionParams)
        kinds = [k for k in KINDS if (sources / k).is_dir()]
        if not kinds:
            raise SourceError(f"{sources}: no source kind here, expected any of {', '.join(KINDS)}; run dvc repro")
        made = make_instructions(pl.concat([read_documents(sources / k) for k in kinds]), params)
        fields = {"suite": args.suite, "sources": {k: manifest_sha256(sources / k) for k in kinds}}
        write_instructions(out, made, params=params, fields=fields)
    return 0


if __name__ == "__main__":
    sys.exit(main())
