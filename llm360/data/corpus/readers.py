"""Readers of corpus files: records one at a time, in memory bounded by the longest record allowed.

A record that cannot be read comes as Unreadable in its place, so that whoever counts can name it.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

CODECS = {".gz": "gzip", ".zst": "zstd"}
LONG = "longer than max_document_mb"
BROKEN = "the file breaks off"
STEP = 65_536  # bytes asked of a decompressor at once: what has to be read again before a cut
BUFFER = 1_000_000
ROWS = 64  # of a Parquet file held at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unreadable:
    """Why a record is left out: reason, one of a few by which it is counted, and what exactly was found."""

    reason: str
    detail: str


Record = Mapping[str, Any] | Unreadable
Numbered = Iterator[tuple[int, Record]]  # number of the line or row, from 1


def json_lines(path: Path, *, longest: int) -> Numbered:
    """Yield the objects of a JSONL file, plain, .gz or .zst; blank lines are none. ``longest`` is in bytes of a line.

    A stream that is cut gives every whole line before the cut, which is the last, Unreadable.
    """
    number = 0
    with open_stream(path) as stream:
        try:
            while line := stream.readline(longest + 1):
                number += 1
                if len(line) > longest and not line.endswith(b"\n"):
                    size = len(line) + _skip_line(stream)
                    yield number, Unreadable(reason=LONG, detail=f"{size} bytes in its line")
                elif line.strip():
                    yield number, _parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
        except OSError as error:
            yield number + 1, Unreadable(reason=BROKEN, detail=f"{error}, {_given(stream)}")


def text_file(path: Path, *, longest: int) -> Numbered:
    """Yield the one record of a text file, plain, .gz or .zst: ``{"text": ...}``; ``longest`` is in bytes."""
    with open_stream(path) as stream:
        try:
            data = stream.read(longest + 1)
        except OSError as error:
            yield 1, Unreadable(reason=BROKEN, detail=f"{error}, {_given(stream)}")
            return
    text = _decoded(data) if len(data) <= longest else Unreadable(reason=LONG, detail=f"more than {longest} bytes")
    yield 1, text if isinstance(text, Unreadable) else {"text": text}


def parquet_rows(path: Path, *, columns: Sequence[str]) -> Numbered:
    """Yield the rows of a Parquet file with those of ``columns`` that it has.

    A file that is cut gives the rows before the cut (none where its end is missing), which is the last, Unreadable.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=ROWS, columns=present, use_threads=False):
                for row in range(batch.num_rows):
                    number += 1
                    yield number, _row(batch, row)
    except (OSError, pa.ArrowException) as error:
        yield number + 1, Unreadable(reason=BROKEN, detail=f"not Parquet from here on ({_first_line(error)})")


def open_stream(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed by its suffix."""
    if path.suffix not in CODECS:
        return open(path, "rb", buffering=BUFFER)
    return io.BufferedReader(_Decompressed(path), BUFFER)


class _Decompressed(io.RawIOBase):
    """A decompressed file which gives every byte before a cut: the decompressor alone loses the block of the cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given = 0
        self._step = STEP
        self._open()

    def _open(self) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.OSFile(str(self.path), "rb"), CODECS[self.path.suffix])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(min(len(buffer), self._step))
        except OSError:
            if self._step == 1:
                raise
            self._read_again()
            return self.readinto(buffer)
        buffer[: len(data)] = data
        self.given += len(data)
        return len(data)

    def _read_again(self) -> None:
        self._stream.close()
        self._open()
        left = self.given
        while left:
            left -= len(self._stream.read(min(left, STEP)))
        self._step = 1

    def close(self) -> None:
        self._stream.close()
        super().close()


def _given(stream: IO[bytes]) -> str:
    raw = getattr(stream, "raw", None)
    return f"after {raw.given} bytes of text" if isinstance(raw, _Decompressed) else "in reading"


def _skip_line(stream: IO[bytes]) -> int:
    size = 0
    while piece := stream.readline(BUFFER):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def _parsed(line: bytes) -> Record:
    text = _decoded(line)
    if isinstance(text, Unreadable):
        return text
    try:
        value = json.loads(text.rstrip("\r\n"))  # else a string that is not closed is said to hold a line break
    except (ValueError, RecursionError) as error:
        return Unreadable(reason="not JSON", detail=_first_line(error))
    if not isinstance(value, dict):
        return Unreadable(reason="not a JSON object", detail=type(value).__name__)
    return value


def _decoded(data: bytes) -> str | Unreadable:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Unreadable(reason="not UTF-8", detail=f"at byte {error.start}")


def _row(batch: pa.RecordBatch, row: int) -> Record:
    try:
        return {name: batch.column(name)[row].as_py() for name in batch.schema.names}
    except UnicodeDecodeError as error:
        return Unreadable(reason="not UTF-8", detail=f"at byte {error.start}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
