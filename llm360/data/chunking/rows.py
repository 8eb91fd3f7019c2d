"""Documents joined to a stream of tokens and cut into rows, each with the spans of documents that fill it.

<name>.rows         rows, raw tokens [rows, row_tokens], uint16 or uint32
<name>.spans        Arrow file, a row for each row: which tokens of it are which document's
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.arrow import boolean, int64
from llm360.data.chunking.shards import token_dtype
from llm360.data.tokens.encoder import Encoder
from llm360.files import PARTIAL, named_when_full

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = ("id", "source", "licence", "origin")
Ids = npt.NDArray[Any]


class Rows:
    """Joins documents to a stream and writes it row by row; holds no more than one table of documents."""

    def __init__(self, out: Path, encoder: Encoder, *, row_tokens: int) -> None:
        self.out, self.row_tokens, self._encoder = out, row_tokens, encoder
        self.rows = self.tokens = 0
        self._dtype = token_dtype(encoder.vocab_size)
        self._rest: Ids = np.empty(0, dtype=self._dtype)  # the tokens that fill no row yet,
        self._named: pa.Table | None = None  # the documents that they belong to,
        self._starts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)  # where these start, before it if negative,
        self._before = 0  # and the bytes of the first one's text that lie before it
        self._partial = [p.with_name(f"{PARTIAL}{p.name}") for p in (rows_path(out), spans_path(out))]

    def __enter__(self) -> Rows:
        import pyarrow as pa

        self.out.parent.mkdir(parents=True, exist_ok=True)
        self._handle = open(self._partial[0], "wb")
        self._spans = pa.ipc.new_file(str(self._partial[1]), spans_schema())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with named_when_full(self.out):
            self._spans.close()
            self._handle.close()
            if kind is None:
                self._partial[0].replace(rows_path(self.out))
                self._partial[1].replace(spans_path(self.out))
        for path in self._partial:
            path.unlink(missing_ok=True)

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
        read = self._bytes_before(stream)
        if count:
            with named_when_full(self.out):
                self._handle.write(stream[:end].tobytes())
                self._spans.write_batch(self._batch(count, read))
        self.rows += count
        kept = max(int(np.searchsorted(self._starts, end, side="right")) - 1, 0) if end < len(stream) else None
        self._before = 0 if kept is None or read is None else self._text_byte(read, end, kept)
        self._rest = stream[end:]
        self._named = None if kept is None or self._named is None else self._named.slice(kept).combine_chunks()
        self._starts = self._starts[:0] if kept is None else self._starts[kept:] - end

    def _bytes_before(self, stream: Ids) -> npt.NDArray[np.int64] | None:
        """Return for each place in the stream the bytes of text before it; None where ids do not map to bytes."""
        sizes = self._encoder.token_bytes
        return None if sizes is None else np.concatenate([[0], np.cumsum(sizes[stream], dtype=np.int64)])

    def _text_byte(self, read: npt.NDArray[np.int64], at: int, document: int) -> int:
        start = int(self._starts[document])
        return int(read[at] - read[start]) if start >= 0 else int(read[at]) + self._before

    def _batch(self, count: int, read: npt.NDArray[np.int64] | None) -> pa.RecordBatch:
        """Return the spans of ``count`` rows: the stream is cut where a document or a row begins."""
        import pyarrow as pa

        end = count * self.row_tokens
        rows = np.arange(count + 1) * self.row_tokens
        cuts = np.union1d(np.maximum(self._starts[self._starts < end], 0), rows[:-1])
        stops = np.append(cuts[1:], end)
        document = np.searchsorted(self._starts, cuts, side="right") - 1
        first = cuts // self.row_tokens * self.row_tokens
        tokens = {"start": cuts - first, "end": stops - first, "document_start": cuts - self._starts[document]}
        places = {k: int64(v) for k, v in tokens.items()} | self._text_bytes(cuts, stops, document, read)
        spans = pa.StructArray.from_arrays(self._columns(document, places), fields=list(span_type()))
        offsets = int64(np.searchsorted(cuts, rows)).cast(pa.int32())
        return pa.record_batch([pa.ListArray.from_arrays(offsets, spans)], schema=spans_schema())

    def _text_bytes(self, cuts: Ids, stops: Ids, document: Ids, read: Ids | None) -> dict[str, Any]:
        import pyarrow as pa

        assert self._named is not None
        if read is None:
            return {name: pa.nulls(len(cuts), pa.int64()) for name in ("byte_start", "byte_end")}
        starts = self._starts[document]
        base = np.where(starts >= 0, read[np.maximum(starts, 0)], -self._before)
        plain = np.asarray(self._named["plain"].to_pylist(), dtype=bool)[document]
        places = {"byte_start": read[cuts] - base, "byte_end": read[stops] - base}
        return {name: int64(place, valid=plain) for name, place in places.items()}

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
