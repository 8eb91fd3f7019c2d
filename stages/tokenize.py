"""Tokenize, mix, shuffle and cut one phase's chunks: artifacts/chunks/<suite>[/<phase>]/."""

from __future__ import annotations

import argparse
import sys

from llm360.data.card import FILE as CARD
from llm360.data.card import data_card
from llm360.data.chunks import ChunkParams, build_chunks
from llm360.data.documents import read_documents
from llm360.data.tokenizer import load_encoder
from llm360.files import manifest_sha256, new_folder, read_manifest, verify, write_bytes, write_manifest
from stages._stage import ARTIFACTS, one_line_errors, section, stage


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", required=True, help="key of the chunks section, e.g. crystal-mini-phase2")
    args = parser.parse_args(argv)
    with one_line_errors():
        params = section(f"chunks.{args.phase}", ChunkParams)
    out = ARTIFACTS / "chunks" / params.folder
    with stage(out):
        tokenizer_folder = ARTIFACTS / "tokenizers" / params.tokenizer
        sources = {kind: ARTIFACTS / "sources" / kind for kind in params.mixture}
        with new_folder(out) as folder:
            verify(tokenizer_folder)
            documents = {kind: read_documents(path) for kind, path in sources.items()}
            fields = build_chunks(folder, documents, load_encoder(tokenizer_folder), params)
            inputs = {kind: manifest_sha256(path) for kind, path in sources.items()}
            card = data_card(fields, {kind: read_manifest(path) for kind, path in sources.items()})
            write_bytes(folder / CARD, card.encode())
            write_manifest(folder, {**fields, "tokenizer_sha256": manifest_sha256(tokenizer_folder), "sources": inputs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
