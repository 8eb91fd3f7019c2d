"""Rebuild every row of every chunk of a workspace from the documents that its provenance names, and compare.

    python -m benchmarks.provenance            # in a project whose chunks are built

Tokens are compared with those of the documents, encoded anew (and with the middle filled in, where the mixture says
so); the text's bytes with those of the documents. Prints one JSON object: rows, spans, bytes, rows that differ.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import registry
from llm360.config import from_mapping
from llm360.data.chunks import ChunkReader
from llm360.data.documents import read_documents
from llm360.data.mixture import ChunkParams
from llm360.data.tokens.encoder import encoder_of
from llm360.data.tokens.fim import fill_in_the_middle, fim_ids

PARAMS = ("suite", "phase", "folder", "tokenizer", "sequence_length", "first_chunk", "chunks", "rows_per_chunk")
PARAMS += ("validation_rows", "seed", "mixture", "last_chunk_rows")


def main() -> int:
    artifacts = registry.Workspace.find().artifacts
    totals = {"rows": 0, "spans": 0, "bytes": 0, "different": 0}
    for manifest in sorted((artifacts / "chunks").rglob("manifest.json")):
        for name, count in check(artifacts, ChunkReader(manifest.parent)).items():
            totals[name] += count
    print(json.dumps(totals))
    return 1 if totals["different"] or not totals["rows"] else 0


def check(artifacts: Path, reader: ChunkReader) -> dict[str, int]:
    """Rebuild every row of a phase and return how many there were, and how many differ."""
    rebuild = Rebuild(artifacts, reader)
    counts = {"rows": 0, "spans": 0, "bytes": 0, "different": 0}
    first = reader.manifest["first_chunk"]
    for chunk in range(first, first + reader.manifest["chunks"]):
        for tokens, row in zip(reader.tokens(chunk), reader.provenance(chunk).iter_rows(named=True), strict=True):
            counts["rows"] += 1
            counts["spans"] += len(row["spans"])
            counts["bytes"] += sum((s["byte_end"] or 0) - (s["byte_start"] or 0) for s in row["spans"])
            counts["different"] += not rebuild.equals(tokens, row)
    return counts


class Rebuild:
    """The documents of a phase, and their tokens as each epoch reads them."""

    def __init__(self, artifacts: Path, reader: ChunkReader) -> None:
        fields = {name: reader.manifest[name] for name in PARAMS}
        self.params = from_mapping(ChunkParams, fields, where=str(reader.folder))
        self.encoder = encoder_of(reader.manifest, artifacts / "tokenizers" / self.params.tokenizer)
        frames = {kind: read_documents(artifacts / "sources" / kind) for kind in self.params.mixture}
        self.texts: Mapping[str, str] = {i: t for f in frames.values() for i, t in f.select("id", "text").iter_rows()}
        self.stream = functools.lru_cache(maxsize=4096)(self._stream)

    def equals(self, tokens: npt.NDArray[Any], row: Mapping[str, Any]) -> bool:
        """Return whether a row's spans, taken from their documents, are its tokens and its text."""
        streams = [self.stream(row["kind"], s["document"], row["epoch"]) for s in row["spans"]]
        places = zip(streams, row["spans"], strict=True)
        pieces = [ids[s["document_start"] :][: s["end"] - s["start"]] for ids, s in places]
        return np.array_equal(np.concatenate(pieces), tokens) and all(self._texts(tokens, row["spans"]))

    def _texts(self, tokens: npt.NDArray[Any], spans: list[dict[str, Any]]) -> Iterator[bool]:
        for span in (s for s in spans if s["byte_start"] is not None):
            text = self.texts[span["document"]].encode()[span["byte_start"] : span["byte_end"]]
            yield text == self.encoder.decode_bytes(tokens[span["start"] : span["end"]])

    def _stream(self, kind: str, document: str, epoch: int) -> npt.NDArray[Any]:
        (ids,) = self.encoder.encode([self.texts[document]])
        if (fim := self.params.mixture[kind].fim) is not None:
            numbers = fim_ids(fim, self.encoder)
            changed = fill_in_the_middle(ids, numbers, seed=self.params.seed, document=document, epoch=epoch)
            ids = ids if changed is None else changed
        return np.append(ids, self.encoder.eos)


if __name__ == "__main__":
    sys.exit(main())
