"""A chunk of a workspace: its tokens, where each row is from, and each row's text rebuilt from its tokens."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import NotFound, StoreUnavailable
from llm360.files import MANIFEST
from registry.ids import ArtifactId, whole_number
from registry.suite import Suite

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from llm360.data.chunks import ChunkReader
    from llm360.data.tokens.encoder import Encoder
    from registry.workspace import Workspace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Excerpt:
    """One document's part of a row.

    data is the bytes that its tokens stand for, special tokens none: the document's own unless they were rearranged,
    as fill-in-the-middle does. text is what training read, special tokens spelled; a character that the row cuts in
    two becomes U+FFFD. ends: its end token is in this row.
    """

    document: str
    data: bytes
    text: str
    rearranged: bool
    ends: bool


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """One chunk of training data.

    index is its number in the suite; tokens is [rows, sequence_length + 1] uint16 (uint32 above 65,536 entries);
    provenance has a row for each row of tokens: row, array_row, kind, epoch, spans (document, start, end, licence,
    origin...). tokenizer is the folder of the tokenizer that made it.
    """

    id: ArtifactId
    phase: str
    index: int
    tokens: npt.NDArray[np.uint16]
    provenance: pl.DataFrame
    tokenizer: Path
    reader: ChunkReader = dataclasses.field(repr=False)

    def documents(self, row: int) -> list[Excerpt]:
        """Return a row's documents in their order, each with the bytes of its part of the row.

        Raises NotFound for a row that is not there, StoreUnavailable when the tokenizer is not in this workspace,
        FingerprintMismatch when it is not the one that made the chunk.
        """
        index = whole_number(row)
        if index is None or not 0 <= index < len(self.tokens):
            raise NotFound(f"{self.id} has rows 0 to {len(self.tokens) - 1}, read row {row!r}")
        encoder = self._encoder()
        return [_excerpt(encoder, self.tokens[index], span) for span in self.provenance["spans"][index].to_list()]

    def text(self, row: int) -> str:
        """Return a row's text as training read it, special tokens spelled: ``</s>`` where a document ends."""
        return "".join(excerpt.text for excerpt in self.documents(row))

    def _encoder(self) -> Encoder:
        if not (self.tokenizer / MANIFEST).is_file():
            raise StoreUnavailable(
                f"{self.id}: its text needs the tokenizer {self.tokenizer}, which is not here; "
                f"`dvc pull artifacts/tokenizers/{self.tokenizer.name}` brings it, `make repro` builds it"
            )
        return _load(self.reader, self.tokenizer)


@functools.lru_cache(maxsize=4)
def _load(reader: ChunkReader, tokenizer: Path) -> Encoder:
    from llm360.data.tokens.encoder import encoder_of

    return encoder_of(reader.manifest, tokenizer)


def _excerpt(encoder: Encoder, tokens: npt.NDArray[np.uint16], span: Mapping[str, Any]) -> Excerpt:
    ids = tokens[span["start"] : span["end"]]
    return Excerpt(
        document=span["document"],
        data=encoder.decode_bytes(ids),
        text="".join(_shown(encoder, ids)),
        rearranged=encoder.token_bytes is not None and span["byte_start"] is None,
        ends=bool(len(ids)) and int(ids[-1]) == encoder.eos,
    )


def _shown(encoder: Encoder, ids: npt.NDArray[np.uint16]) -> Iterator[str]:
    """Yield the text between special tokens, and these by their names."""
    names = {number: name for name, number in encoder.special_tokens.items()}
    start = 0
    for place in [i for i, number in enumerate(ids.tolist()) if number in names]:
        yield encoder.decode_bytes(ids[start:place]).decode("utf-8", errors="replace")
        yield names[int(ids[place])]
        start = place + 1
    yield encoder.decode_bytes(ids[start:]).decode("utf-8", errors="replace")


def read_chunk(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> Chunk:
    """Return a chunk that is in a workspace; its files are checked against their sha256 first."""
    from registry.history import read_chunks
    from registry.workspace import verify_files

    found = workspace.resolve(suite, artifact)
    verify_files(workspace.folder(found), found, tuple(e.path for e in found.files if e.path.endswith(".json")))
    index = artifact.index or 0
    phase = suite.phase_of(index)
    reader = read_chunks(workspace.folder(found), suite.name, phase)
    return Chunk(
        id=artifact,
        phase=phase.name,
        index=index,
        tokens=reader.tokens(index),
        provenance=reader.provenance(index),
        tokenizer=workspace.artifacts / "tokenizers" / reader.manifest["tokenizer"],
        reader=reader,
    )
