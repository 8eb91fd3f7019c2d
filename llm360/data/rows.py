"""Documents of one kind packed into rows of sequence_length + 1 tokens, each row with the spans that fill it."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from llm360.data.tokenizer import EOS, encode
from llm360.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Part = Literal["all", "even", "odd", "first_tenth"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """tokens: [rows, sequence_length + 1] uint32; spans: for each row the documents in it; dropped: tail tokens."""

    tokens: npt.NDArray[np.uint32]
    spans: list[list[dict[str, Any]]]
    dropped_tokens: int


def select_part(documents: pl.DataFrame, part: Part) -> pl.DataFrame:
    """Return a part of a kind's documents by their number: CrystalCoder's halves and tenths."""
    number = pl.int_range(pl.len())
    if part == "first_tenth":
        return documents.filter(number < max(len(documents) // 10, 1))
    if part in ("even", "odd"):
        return documents.filter(number % 2 == (part == "odd"))
    return documents


def hold_out(documents: pl.DataFrame, *, seed: int, tokens: int, bytes_per_token: float) -> pl.Series:
    """Return the ids of the documents held out for validation: the same set for every phase of a suite.

    They are the first in the order of a hash of (seed, id), until they hold about ``tokens`` tokens.
    """
    keys = [hashlib.sha256(f"{seed}/{i}".encode()).hexdigest() for i in documents["id"]]
    ordered = documents.select("id", size=pl.col("text").str.len_bytes(), key=pl.Series(keys)).sort("key")
    before = pl.col("size").cum_sum().shift(1, fill_value=0)
    return ordered.filter(before < tokens * bytes_per_token)["id"]


def pack(documents: pl.DataFrame, encoder: Tokenizer, *, row_tokens: int) -> Rows:
    """Join the documents with the end token and cut the stream into rows; the tail that fills no row is counted."""
    end = np.array([encoder.token_to_id(EOS)], dtype=np.uint32)
    pieces = [np.concatenate([ids, end]) for ids in encode(encoder, documents["text"].to_list())]
    if not pieces:
        raise DataError("no documents to pack; expected at least one: check the source's manifest and the part")
    stream = np.concatenate(pieces)
    count = len(stream) // row_tokens
    ends = np.cumsum([len(p) for p in pieces])
    tokens = stream[: count * row_tokens].reshape(count, row_tokens)
    return Rows(tokens, _spans(documents, ends, count, row_tokens), len(stream) - count * row_tokens)


def _spans(documents: pl.DataFrame, ends: Any, count: int, row_tokens: int) -> list[list[dict[str, Any]]]:
    named = documents.select("id", "licence", "origin").rows()
    starts = np.concatenate([[0], ends[:-1]])
    first = np.searchsorted(ends, np.arange(count) * row_tokens, side="right")
    last = np.searchsorted(ends, np.arange(1, count + 1) * row_tokens, side="left")
    return [
        [_span(named[d], int(starts[d]), int(ends[d]), row * row_tokens, row_tokens) for d in range(a, b + 1)]
        for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True))
    ]


def _span(document: tuple[str, str, str], start: int, end: int, row_start: int, row_tokens: int) -> dict[str, Any]:
    """One document's place in a row: tokens [start, end) of the row are its tokens from ``document_start`` on."""
    first, last = max(start, row_start), min(end, row_start + row_tokens)
    return {
        "document": document[0],
        "start": first - row_start,
        "end": last - row_start,
        "document_start": first - start,
        "licence": document[1],
        "origin": document[2],
    }
