"""The document: the one record that flows from every source to the tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from llm360.errors import DataError
from llm360.files import verify

KINDS = ("arxiv", "book", "c4", "refinedweb", "stackexchange", "starcoderdata", "wikipedia")  # Amber, Table 2
FILE = "documents.parquet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A text with its origin.

    id is unique in a run; kind is one of KINDS; source names the file in ``llm360/data/sources``;
    origin is the place inside the source's package; licence is an SPDX id or a short name.
    """

    id: str
    kind: str
    source: str
    origin: str
    licence: str
    text: str


def write_documents(folder: Path, documents: Iterable[Document]) -> int:
    """Write documents as ``documents.parquet`` and return their number; raises DataError when there is none."""
    frame = pl.DataFrame([dataclasses.asdict(d) for d in documents])
    if frame.is_empty():
        raise DataError(
            f"{folder}: the source gave no documents; expected at least one, see its manifest's skipped list"
        )
    if frame["id"].n_unique() != len(frame):
        twice = frame.filter(frame["id"].is_duplicated())["id"][0]
        raise DataError(f"{folder}: document id {twice!r} is used twice; ids must be unique")
    frame.write_parquet(folder / FILE, compression="zstd")
    return len(frame)


def read_documents(folder: Path) -> pl.DataFrame:
    """Return the documents of one kind, in their order, one row each with the fields of Document.

    Raises IntegrityError when the file is not the one that the manifest names, DataError when it holds none.
    """
    verify(folder, only=(FILE,))
    frame = pl.read_parquet(folder / FILE)
    if frame.is_empty():
        raise DataError(f"{folder / FILE}: no documents, expected at least one; rebuild it: dvc repro")
    return frame
