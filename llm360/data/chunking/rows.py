"""Documents joined to a stream of tokens and cut into rows, each with the spans of documents that fill it.

<name>.rows         rows, raw tokens [rows, row_tokens], uint16 or uint32
<name>.spans        Arrow file, a row for each row: which tokens of it are which document's
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.arrow import boolean, int64
from llm360.data.chunking.shards import token_dtype
from llm360.data.tokens.encoder import Encoder
from llm360.files import new_file

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = ("id", "source", "licence", "origin")
Ids = npt.NDArray[Any]


class Rows:
    """Joins documents to a stream and writes it row by row; holds one table of documents and the spans of a part."""

    def __init__(self, out: Path, encoder: Encoder, *, row_tokens: int) -> None:
        self.out, self.row_tokens, self._encoder = out, row_tokens, encoder
        self.rows = self.tokens = 0
        self._dtype = token_dtype(encoder.vocab_size)
        self._rest: Ids = np.empty(0, dtype=self._dtype)  # the tokens that fill no row yet,
        self._named: pa.Table | None = None  # the documents that they belong to,
        self._starts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)  # where these start, before it if negative,
        self._before = 0  # and the bytes of the first one's text that lie before it
        self._spans: list[pa.ListArray] = []  # of the rows that are written

    def __enter__(self) -> Rows:
        with contextlib.ExitStack() as stack:
            partial = stack.enter_context(new_file(rows_path(self.out)))
            self._handle = stack.enter_context(open(partial, "wb"))
            self._files = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self._files.__exit__(*error)
        else:
            with self._files:
                self._write_spans()

    def _write_spans(self) -> None:
        """Write all spans as one batch: rows are picked from it at random, and from many batches that takes longer."""
        import pyarrow as pa

        spans = pa.concat_arrays([pa.nulls(0, spans_schema().field(0).type), *self._spans])
        with new_file(spans_path(self.out)) as partial, pa.ipc.new_file(str(partial), spans_schema()) as file:
            file.write_batch(pa.record_batch([spans], schema=spans_schema()))

    def add(self, named: pa.Table, ids: Sequence[Ids], plain: npt.NDArray[np.bool_]) -> None:
        """Add documents: columns id, source, licence, origin; their ids; whether these are the text's, unchanged."""
        import pyarrow as pa

        if not ids:
            return
        named = named.append_column("plain", boolean(plain))
        stream, starts = self._joined(ids)
        self._named = named if self._named is None else pa.concat_tables([self._named, named])
        self._starts = np.concatenate([self._starts, starts])
        self.tokens += len(stream) - len(self._rest)
        self._write(stream)

    def _joined(self, ids: Sequence[Ids]) -> tuple[Ids, npt.NDArray[np.int64]]:
        end = np.array([self._encoder.eos], dtype=self._dtype)
        pieces = [self._rest] + [piece for document in ids for piece in (document.astype(self._dtype), end)]
        lengths = np.fromiter((len(d) + 1 for d in ids), dtype=np.int64, count=len(ids))
        return np.concatenate(pieces), len(self._rest) + np.cumsum(lengths) - lengths

    def _write(self, stream: Ids) -> None:
        count = len(stream) // self.row_tokens
        end = count * self.row_tokens
        kept = max(int(np.searchsorted(self._starts, end, side="right")) - 1, 0) if end < len(stream) else None
        if count:
            batch, before = self._batch(stream[:end], kept)
            self._handle.write(stream[:end].tobytes())
            self._spans.append(batch)
            self._before = before
        self.rows += count
        self._rest = stream[end:]
        self._named = None if kept is None or self._named is None else self._named.slice(kept).combine_chunks()
        self._starts = self._starts[:0] if kept is None else self._starts[kept:] - end

    def _batch(self, stream: Ids, kept: int | None) -> tuple[pa.ListArray, int]:
        """Return the spans of whole rows: the stream is cut where a document or a row begins.

        And how many bytes of the text of document ``kept`` they hold, with what was before them.
        """
        import pyarrow as pa

        rows = np.arange(0, len(stream) + 1, self.row_tokens)
        cuts = np.union1d(np.maximum(self._starts[self._starts < len(stream)], 0), rows[:-1])
        stops = np.append(cuts[1:], len(stream))
        document = np.searchsorted(self._starts, cuts, side="right") - 1
        first = cuts // self.row_tokens * self.row_tokens
        tokens = {"start": cuts - first, "end": stops - first, "document_start": cuts - self._starts[document]}
        places, before = self._text_bytes(stream, cuts, document, kept)
        places |= {name: int64(place) for name, place in tokens.items()}
        spans = pa.StructArray.from_arrays(self._columns(document, places), fields=list(span_type()))
        offsets = int64(np.searchsorted(cuts, rows)).cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, spans), before

    def _text_bytes(self, stream: Ids, cuts: Ids, document: Ids, kept: int | None) -> tuple[dict[str, Any], int]:
        """Return where each span's text begins and ends in its document's, in bytes; null where they are none."""
        import pyarrow as pa

        sizes = self._encoder.token_bytes
        if sizes is None or self._named is None:
            return {name: pa.nulls(len(cuts), pa.int64()) for name in ("byte_start", "byte_end")}, 0
        read = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes[stream], cuts, dtype=np.int64))])
        first = np.searchsorted(document, document)  # the first span of each span's document
        base = read[first] - np.where(document == document[0], self._before, 0)
        plain = np.asarray(self._named["plain"].to_pylist(), dtype=bool)[document]
        places = {"byte_start": read[:-1] - base, "byte_end": read[1:] - base}
        before = int(places["byte_end"][-1]) if kept == document[-1] else 0
        return {name: int64(place, valid=plain) for name, place in places.items()}, before

    def _columns(self, document: Ids, places: dict[str, Any]) -> list[pa.Array]:
        assert self._named is not None
        taken = {name: self._named[name].combine_chunks().take(int64(document)) for name in NAMED}
        columns = {**places, **taken, "document": taken["id"]}
        return [columns[field.name] for field in span_type()]

    def counts(self) -> dict[str, Any]:
        """Return rows, tokens and what of them fills no row, with the documents that it belongs to."""
        ends = [*self._starts[1:], len(self._rest)]
        names = [] if self._named is None else self._named["id"].to_pylist()
        tail = [
            {"document": name, "document_start": max(-int(start), 0), "tokens": int(end - max(start, 0))}
            for name, start, end in zip(names, self._starts, ends, strict=False)
        ]
        return {"rows": self.rows, "tokens": self.tokens, "tail": tail}


def rows_path(out: Path) -> Path:
    """Return the path of the raw rows."""
    return out.with_suffix(".rows")


def spans_path(out: Path) -> Path:
    """Return the path of the rows' spans."""
    return out.with_suffix(".spans")


@functools.cache
def span_type() -> pa.StructType:
    """Return a span: tokens [start, end) of a row are the document's own, from document_start on."""
    import pyarrow as pa

    texts, places = ("document", "source"), ("start", "end", "document_start", "byte_start", "byte_end")
    names = [*((n, pa.string()) for n in texts), *((n, pa.int64()) for n in places)]
    return pa.struct([*names, ("licence", pa.string()), ("origin", pa.string())])


def spans_schema() -> pa.Schema:
    """Return the schema of a spans file."""
    import pyarrow as pa

    return pa.schema([("spans", pa.list_(span_type()))])
