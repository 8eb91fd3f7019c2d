"""Tokenize, mix, shuffle and cut one phase's chunks: artifacts/chunks/<suite>[/<phase>]/."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from llm360.code import code_sha256
from llm360.data.card import FILE as CARD
from llm360.data.card import data_card
from llm360.data.chunking.build import Build, build_chunks
from llm360.data.mixture import ChunkParams
from llm360.data.planning.plan import check_phase
from llm360.data.tokens.encoder import cached_encoder
from llm360.errors import ConfigError, did_you_mean
from llm360.files import manifest_sha256, new_folder, read_manifest, verify, write_bytes, write_manifest
from llm360.processes import Workers
from stages._stage import (
    ARTIFACTS,
    mapping,
    one_line_errors,
    persistent,
    remove_work,
    section,
    stage,
    workers,
)

CODE = (  # what the bytes of chunks come from
    "llm360/data/arrow.py",
    "llm360/data/chunking",
    "llm360/data/documents.py",
    "llm360/data/mixture.py",
    "llm360/data/order.py",
    "llm360/data/tokens",
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", required=True, help="key of the chunks section, e.g. crystal-mini-phase2")
    args = parser.parse_args(argv)
    with one_line_errors():
        params = section(f"chunks.{args.phase}", ChunkParams)
    out, work = ARTIFACTS / "chunks" / params.folder, ARTIFACTS / ".work" / "chunks" / params.folder
    with stage(out), Workers(workers()) as pool:
        build = Build(
            params=params,
            sources={kind: (ARTIFACTS / "sources" / kind).resolve() for kind in params.mixture},
            tokenizer=(ARTIFACTS / "tokenizers" / params.tokenizer).resolve(),
            work=work.resolve(),  # a worker of a cluster has a working directory of its own
            workers=pool,
        )
        _require_sources(params)
        check_phase(params, sources=ARTIFACTS / "sources", tokenizer=build.tokenizer, batch_size=None, work=work)
        _run(out, build)
        remove_work(work)
    return 0


def _require_sources(params: ChunkParams) -> None:
    known = mapping("sources")
    if unknown := sorted(params.mixture.keys() - known.keys()):
        raise ConfigError(f"chunks, mixture: no kind {unknown[0]!r} in sources; {did_you_mean(unknown[0], known)}")


def _run(out: Path, build: Build) -> None:
    verify(build.tokenizer)
    inputs = {
        "tokenizer_sha256": manifest_sha256(build.tokenizer),
        "sources": {kind: manifest_sha256(folder) for kind, folder in build.sources.items()},
    }
    persistent(build.work, _recipe(build, inputs))
    with new_folder(out) as folder:
        fields = build_chunks(folder, build) | inputs
        card = data_card(fields, {kind: read_manifest(path) for kind, path in build.sources.items()})
        write_bytes(folder / CARD, card.encode())
        write_manifest(folder, fields)


def _recipe(build: Build, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return what the files in the work folder depend on: the encoder's library only by its name and version."""
    code = code_sha256(*CODE)
    return {
        "params": dataclasses.asdict(build.params),
        "encoder": cached_encoder(build.tokenizer).name,
        "code": code,
    } | inputs


if __name__ == "__main__":
    sys.exit(main())
