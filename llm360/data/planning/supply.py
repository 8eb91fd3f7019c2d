"""How much there is of a kind: counted from its documents, or declared before there are any."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from llm360.data.documents import Part, input_files, parts, read_part
from llm360.data.mixture import ChunkParams, Ingredient, Select
from llm360.errors import DataError
from llm360.files import MANIFEST

if TYPE_CHECKING:
    from llm360.data.tokens.encoder import Encoder

ESTIMATE = 0.10  # an estimate refuses a mixture only when it is further off than this
DECLARED_DIGIT = 10_000_000  # published tables print 0.01 billion tokens (Amber, Table 2)
SAMPLE_BYTES = 200_000  # of text per kind that is encoded to learn the bytes of a token
TEXT_PER_TOKEN = 4.2  # bytes: measured on 100 MB of English and code with a BPE of 32,000 ids
DOCUMENTS_RATIO = 3.0  # bytes of text in a byte of documents: measured, 2.7 for novels, 4.3 for Python
FRACTION: dict[str, float] = {"all": 1.0, "even": 0.5, "odd": 0.5, "first_tenth": 0.1}
Basis = Literal["declared", "estimated", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supply:
    """What there is to train on of one kind, in the part of it that a mixture chooses, in one epoch.

    tokens: null where it cannot be said. tolerance: how many more there may be, given how the number was found.
    documents_bytes: of the whole kind on disk; spans: documents of the part, null where there are none yet.
    """

    tokens: int | None
    tolerance: int
    basis: Basis
    note: str
    documents_bytes: int
    documents: int | None


def declared(tokens: float | None, part: Select) -> Supply:
    """Return what a kind without documents is said to hold: tokens to train on, with validation already held out.

    A part of it is an estimate: halves and tenths are of files or documents, not of tokens.
    """
    if tokens is None:
        return Supply(tokens=None, tolerance=0, basis="unknown", note="not built", documents_bytes=0, documents=None)
    fraction = FRACTION[part.removesuffix("_files")]
    here = round(tokens * fraction)
    rounded = f"{tokens / 1e9:,.2f} billion declared, rounded to {DECLARED_DIGIT / 1e9:g}"
    return Supply(
        tokens=here,
        tolerance=DECLARED_DIGIT // 2 if part == "all" else round(here * ESTIMATE),
        basis="declared",
        note=rounded if part == "all" else f"about {fraction:g} of {tokens / 1e9:,.2f} billion declared",
        documents_bytes=round(tokens * TEXT_PER_TOKEN / DOCUMENTS_RATIO),
        documents=None,
    )


def is_built(folder: Path) -> bool:
    """Return whether a kind's documents are there."""
    return (folder / MANIFEST).is_file()


def counted(folder: Path, ingredient: Ingredient, params: ChunkParams, encoder: Encoder | None) -> Supply:
    """Return what a kind's documents hold, by their bytes and the bytes of a token in a sample of them.

    encoder null: there is no tokenizer yet, so the bytes say nothing of tokens. Raises DataError for a part that
    leaves no document.
    """
    found = parts(folder)
    chosen = chosen_documents(folder, found, ingredient.part)
    if not sum(chosen):
        raise DataError(
            f"{folder}: part {ingredient.part} leaves none of {_documents(found)} documents from {input_files(folder)} "
            f"input files; choose another part, or by documents instead of files"
        )
    size = round(sum(n * p.bytes / max(p.documents, 1) for n, p in zip(chosen, found, strict=True)))
    on_disk = sum((folder / p.path).stat().st_size for p in found)
    common = {"documents_bytes": on_disk, "documents": sum(chosen)}
    if encoder is None:
        note = f"{size / 1e6:,.2f} MB of text, no tokenizer yet"
        return Supply(tokens=None, tolerance=0, basis="unknown", note=note, **common)
    per_token = bytes_per_token(folder, found, encoder)
    document = _bytes(found) / _documents(found) / per_token  # held out whole, so about one more than its rows need
    held_out = params.validation_rows * params.row_tokens + document
    marks = 0 if ingredient.fim is None else len(ingredient.fim.tokens) * ingredient.fim.rate * sum(chosen)
    tokens = max(round(size / per_token + marks - held_out * size / _bytes(found)), 0)
    note = f"{size / 1e6:,.2f} MB of text at {per_token:.2f} bytes a token, estimated"
    note += "" if tokens else f", all of it held out by validation_rows {params.validation_rows}"
    tolerance = round(tokens * ESTIMATE + document)
    return Supply(tokens=tokens, tolerance=tolerance, basis="estimated", note=note, **common)


def _documents(found: list[Part]) -> int:
    return sum(p.documents for p in found)


def _bytes(found: list[Part]) -> int:
    return max(sum(p.bytes for p in found), 1)


def chosen_documents(folder: Path, found: list[Part], select: Select) -> list[int]:
    """Return how many documents of each part a mixture's part chooses."""
    import numpy as np

    from llm360.data.chunking.pack import selected

    total = {"documents": _documents(found), "files": input_files(folder)}
    return [int(selected(np.arange(p.first, p.first + p.documents), p.file, select, **total).sum()) for p in found]


def bytes_per_token(folder: Path, found: list[Part], encoder: Encoder) -> float:
    """Return the bytes of text that a token stands for, end tokens included, in a sample of a kind's documents.

    The sample is every n-th document of the first row groups of the first, the middle and the last part.
    """
    texts: list[str] = []
    filled = [p for p in found if p.documents]
    for part in {p.path: p for p in (filled[0], filled[len(filled) // 2], filled[-1])}.values():
        table = next(read_part(folder, part, columns=("text", "bytes")))
        step = max(1, sum(table["bytes"].to_pylist()) // SAMPLE_BYTES)
        texts += table["text"].to_pylist()[::step]
    tokens = sum(len(ids) + 1 for ids in encoder.encode(texts))
    return max(sum(len(t.encode()) for t in texts), 1) / tokens
