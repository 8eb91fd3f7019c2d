"""Train a suite's tokenizer on the sources and prove its encoder: artifacts/tokenizers/<suite>/."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from llm360.data.documents import parts, read_part
from llm360.data.tokens.encoder import prove_encoder
from llm360.data.tokens.tokenizer import TokenizerParams, sample_texts, train_tokenizer
from llm360.errors import ConfigError, did_you_mean
from llm360.files import new_folder, write_manifest
from llm360.progress import say
from stages._stage import ARTIFACTS, PARAMS, mapping, section, stage

PROOF_MB = 8.0  # of the same documents that the tokenizer is trained on: about three seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    args = parser.parse_args(argv)
    out = ARTIFACTS / "tokenizers" / args.suite
    with stage(out):
        params = section(f"tokenizers.{args.suite}", TokenizerParams)
        kinds = sorted(params.kinds)
        require_known(kinds, mapping("sources"), where=f"{PARAMS}: tokenizers.{args.suite}.kinds")
        tokenizer = train_tokenizer(sample_texts(_texts(kinds), megabytes=params.sample_mb), params)
        with new_folder(out) as folder:
            tokenizer.save_pretrained(folder)
            proof = prove_encoder(folder, documents=sample_texts(_texts(kinds), megabytes=PROOF_MB))
            fields = dataclasses.asdict(params) | {"suite": args.suite, "ids": len(tokenizer), "kinds": kinds}
            write_manifest(folder, fields)
        compared = f"{proof.texts} documents, {proof.bytes / 1e6:.1f} MB"
        say(f"{out}: {len(tokenizer)} ids; encoded by {proof.library}, compared on {compared}")
    return 0


def require_known(kinds: Iterable[str], sources: Collection[str], *, where: str) -> None:
    """Raise ConfigError, naming ``where``, for a kind that the section sources lacks."""
    for kind in kinds:
        if kind not in sources:
            raise ConfigError(f"{where}: {kind!r} is not in sources; {did_you_mean(kind, sources)}")


def _texts(kinds: Iterable[str]) -> list[Iterator[str]]:
    """Return the texts of each kind as streams from their beginning."""
    return [_stream(ARTIFACTS / "sources" / kind) for kind in kinds]


def _stream(folder: Path) -> Iterator[str]:
    for part in parts(folder):
        for table in read_part(folder, part, columns=["text"]):
            yield from table["text"].to_pylist()


if __name__ == "__main__":
    sys.exit(main())
