"""Documents: the one record that flows from every source to the tokenizer, in Parquet parts of bounded size.

documents/part_<iiiii>.parquet   row groups of a few MB, so that a part of any size is read in constant memory
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import DataError, IntegrityError
from llm360.files import MANIFEST, FileEntry, new_file, read_manifest, sha256_bytes, verify, verify_file

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

KINDS = ("arxiv", "book", "c4", "refinedweb", "stackexchange", "starcoderdata", "wikipedia")  # Amber, Table 2
FOLDER = "documents"
PART_BYTES = 64_000_000  # of text: a unit of work, and of what a kill can cost
REPEATED = ["kind", "source", "licence"]  # columns of few values: the others read faster without a dictionary
ROW_BYTES = 500  # of memory that a row takes beside its texts, roughly: a million empty ones are half a gigabyte
GROUP_BYTES = 1_000_000  # of text: what a reader holds at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A text with its origin.

    id is unique in a run; kind is one of KINDS or a corpus' own; source names the file in ``llm360/data/sources`` or
    the corpus; origin is the place inside it (file, line or offset); licence is an SPDX id or a short name.
    """

    id: str
    kind: str
    source: str
    origin: str
    licence: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One file of documents: path in its folder, the input file that it came from, number of its first document.

    file counts the input files of the kind from 0: what is chosen by even or odd files is chosen by it.
    bytes are of text; entry is the file's own size and hash.
    """

    path: str
    file: int
    first: int
    documents: int
    bytes: int
    entry: FileEntry


class PartWriter:
    """Writes documents into one Parquet file, which appears by rename when the block ends well.

    Columns: those of Document, sha256 (hex, of the text's UTF-8) and bytes (its length).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.documents = 0
        self.bytes = 0
        self._group: list[dict[str, Any]] = []
        self._group_bytes = 0

    def __enter__(self) -> PartWriter:
        import pyarrow.parquet as pq

        with contextlib.ExitStack() as stack:
            partial = stack.enter_context(new_file(self.path))
            writer = pq.ParquetWriter(partial, schema(), compression="zstd", use_dictionary=REPEATED)
            self._writer = stack.enter_context(writer)
            self._files = stack.pop_all()
        return self

    def add(self, document: Document) -> None:
        """Add one document."""
        data = document.text.encode()
        self._group.append({**dataclasses.asdict(document), "sha256": sha256_bytes(data), "bytes": len(data)})
        self.documents += 1
        self.bytes += len(data)
        self._group_bytes += len(data) + len(document.id) + len(document.origin) + ROW_BYTES
        if self._group_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._group:
            self._writer.write_table(pa.Table.from_pylist(self._group, schema=schema()))
        self._group, self._group_bytes = [], 0

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self._files.__exit__(*error)
        else:
            with self._files:
                self._flush()


def schema() -> pa.Schema:
    """Return the columns of a part."""
    import pyarrow as pa

    texts = [(f.name, pa.large_string() if f.name == "text" else pa.string()) for f in dataclasses.fields(Document)]
    return pa.schema([*texts[:-1], ("sha256", pa.string()), ("bytes", pa.int64()), texts[-1]])


def part_path(number: int) -> str:
    """Return the path of a part in its folder."""
    return f"{FOLDER}/part_{number:05d}.parquet"


def write_documents(folder: Path, documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Write documents as parts of one input file and return the manifest's ``parts``.

    For what fits into memory. Raises DataError when there is none, or when an id is used twice.
    """
    every = list(documents)
    if not every:
        raise DataError(
            f"{folder}: the source gave no documents; expected at least one, see its manifest's skipped list"
        )
    seen: set[str] = set()
    for document in every:
        if document.id in seen:
            raise DataError(f"{folder}: document id {document.id!r} is used twice; ids must be unique")
        seen.add(document.id)
    return write_parts(folder, every, file=0)


def write_parts(folder: Path, documents: Iterable[Document], *, file: int) -> list[dict[str, Any]]:
    """Write the documents of input file ``file`` as parts of about PART_BYTES; return their entries for ``parts``.

    Holds GROUP_BYTES of text (or one document) at a time. No documents: no parts.
    """
    stream = iter(documents)
    written: list[dict[str, Any]] = []
    for document in stream:
        path = part_path(len(written))
        with PartWriter(folder / path) as writer:
            writer.add(document)
            while writer.bytes < PART_BYTES and (following := next(stream, None)) is not None:
                writer.add(following)
        written.append({"path": path, "file": file, "documents": writer.documents, "bytes": writer.bytes})
    return written


def parts(folder: Path) -> list[Part]:
    """Return the parts that a folder's manifest names, in order.

    Raises DataError when they hold no document, IntegrityError when the manifest does not name a part's file.
    """
    manifest = read_manifest(folder)
    files = {entry["path"]: FileEntry(**entry) for entry in manifest["files"]}
    first, found = 0, []
    for part in manifest["parts"]:
        if part["path"] not in files:
            raise IntegrityError(f"{folder / MANIFEST}: does not name {part['path']}; rebuild this folder: dvc repro")
        found.append(Part(first=first, entry=files[part["path"]], **part))
        first += part["documents"]
    if not first:
        raise DataError(f"{folder}: no documents, expected at least one; rebuild it: dvc repro")
    return found


def input_files(folder: Path) -> int:
    """Return how many input files a kind was read from, those without a document included; packages count as one."""
    return int(read_manifest(folder).get("inputs", 1))


def read_part(
    folder: Path, part: Part, *, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """Yield a part's documents in tables of about GROUP_BYTES of text; None means every column, every table.

    Raises IntegrityError when the file is not the one that the manifest names.
    """
    import pyarrow.parquet as pq

    verify_file(folder / part.path, part.entry)  # not by the manifest, which names every part of a large kind
    with pq.ParquetFile(folder / part.path) as file:
        for group in range(file.num_row_groups) if groups is None else groups:
            yield file.read_row_group(group, columns=None if columns is None else list(columns), use_threads=False)


def read_documents(folder: Path) -> pl.DataFrame:
    """Return all documents of one kind, in their order; for kinds that fit into memory.

    Raises IntegrityError when a file is not the one that the manifest names, DataError when there is none.
    """
    import polars as pl

    verify(folder)
    return pl.concat([pl.read_parquet(folder / part.path) for part in parts(folder)])
