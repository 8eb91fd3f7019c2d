"""Train a suite's tokenizer on the sources and prove its encoder: artifacts/tokenizers/<suite>/."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

from llm360.data.documents import parts, read_part
from llm360.data.tokens.encoder import prove_encoder
from llm360.data.tokens.tokenizer import TokenizerParams, sample_texts, train_tokenizer
from llm360.files import new_folder, write_manifest
from llm360.progress import say
from stages._stage import ARTIFACTS, mapping, section, stage

PROOF_MB = 8.0  # of the same documents that the tokenizer is trained on: about three seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    args = parser.parse_args(argv)
    out = ARTIFACTS / "tokenizers" / args.suite
    with stage(out):
        params = section(f"tokenizers.{args.suite}", TokenizerParams)
        tokenizer = train_tokenizer(sample_texts(_kinds(), megabytes=params.sample_mb), params)
        with new_folder(out) as folder:
            tokenizer.save_pretrained(folder)
            proof = prove_encoder(folder, documents=sample_texts(_kinds(), megabytes=PROOF_MB))
            write_manifest(folder, {"suite": args.suite, "ids": len(tokenizer), **dataclasses.asdict(params)})
        compared = f"{proof.texts} documents, {proof.bytes / 1e6:.1f} MB"
        say(f"{out}: {len(tokenizer)} ids; encoded by {proof.library}, compared on {compared}")
    return 0


def _kinds() -> list[Iterator[str]]:
    """Return the texts of each kind as streams from their beginning."""
    return [_texts(ARTIFACTS / "sources" / kind) for kind in mapping("sources")]


def _texts(folder: Path) -> Iterator[str]:
    for part in parts(folder):
        for table in read_part(folder, part, columns=["text"]):
            yield from table["text"].to_pylist()


if __name__ == "__main__":
    sys.exit(main())
