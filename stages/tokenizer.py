"""Train a suite's tokenizer on the sources: artifacts/tokenizers/<suite>/."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from llm360.data.documents import read_documents
from llm360.data.tokenizer import TokenizerParams, sample_texts, train_tokenizer
from llm360.files import new_folder, write_manifest
from stages._stage import ARTIFACTS, mapping, section, stage


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    args = parser.parse_args(argv)
    out = ARTIFACTS / "tokenizers" / args.suite
    with stage(out):
        params = section(f"tokenizers.{args.suite}", TokenizerParams)
        frames = [read_documents(ARTIFACTS / "sources" / kind) for kind in mapping("sources")]
        tokenizer = train_tokenizer(sample_texts(frames, megabytes=params.sample_mb), params)
        with new_folder(out) as folder:
            tokenizer.save_pretrained(folder)
            write_manifest(folder, {"suite": args.suite, "ids": len(tokenizer), **dataclasses.asdict(params)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
