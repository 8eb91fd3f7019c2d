"""A released chunk, read as it comes: gigabytes of JSON lines on the Hub, of which only what is asked for moves."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO

from llm360.errors import IntegrityError, InvalidId
from registry.ids import ArtifactId, whole_number
from registry.store import Artifact
from registry.suite import ChunkLines

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

FIRST_READ, LARGEST_READ = 1 << 18, 1 << 23  # bytes: a first row comes at once, a whole file in few requests
LONGEST_LINE = 1 << 20  # bytes; Amber's lines have 12 kB
ROWS = 256  # of a block: 3 MB of Amber's text
SHOWN = 60  # characters of a bad line
Row = tuple[list[int], str]  # token ids, source


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RowBlock:
    """Rows that follow one another: ``first`` is the number of the first one in the file, from 0.

    tokens is [rows, row_tokens] uint16 (uint32 above 65,536 entries), sources the kind of each row.
    """

    first: int
    tokens: npt.NDArray[np.uint16]
    sources: tuple[str, ...]

    @property
    def provenance(self) -> pl.DataFrame:
        """A row for each row of tokens: row, kind. Documents were not published."""
        import polars as pl

        rows = pl.Series("row", range(self.first, self.first + len(self.sources)), dtype=pl.Int64)
        return pl.DataFrame([rows, pl.Series("kind", self.sources, dtype=pl.String)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedChunk:
    """One released chunk. index is its number in the suite; artifact names the commit, the bytes and their sha256.

    Rows are numbered as they are stored, which is not the order of training. Their bytes are those of the commit, and
    are compared with the sha256 when the whole file is read.
    """

    id: ArtifactId
    phase: str
    index: int
    artifact: Artifact
    lines: ChunkLines
    source: Callable[[], AbstractContextManager[BinaryIO]] = dataclasses.field(repr=False)

    def rows(self, *, start: int = 0, block: int = ROWS) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` on, ``block`` of them at a time; stop whenever enough have come.

        What lies before ``start`` has to be read to be counted, though not parsed. Raises IntegrityError naming the
        line that is not a row, StoreUnavailable when the Hub cannot be reached (any more).
        """
        for name, value, least in (("start", start, 0), ("block", block, 1)):
            number = whole_number(value)
            if number is None or number < least:
                raise InvalidId(f"{self.id}: read {name} {value!r}, expected a whole number from {least} on")
        with self.source() as handle:
            numbered = itertools.islice(enumerate(self._text(handle)), start, None)
            rows = (self._row(number, line) for number, line in numbered)
            for first in itertools.count(start, block):
                if not (group := list(itertools.islice(rows, block))):
                    return
                yield self._block(first, group)

    def head(self, count: int) -> RowBlock:
        """Return the first ``count`` rows, fewer when the chunk has fewer."""
        return next(self.rows(block=count), self._block(0, []))

    def _text(self, handle: BinaryIO) -> Iterator[bytes]:
        """Yield the lines; at the end of the file, raise IntegrityError unless the bytes are those of the sha256."""
        rest, digest, size = b"", hashlib.sha256(), FIRST_READ
        while data := handle.read(size):
            digest.update(data)
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
            size = min(2 * size, LARGEST_READ)
            if len(rest) > LONGEST_LINE:  # no row: let it be refused before it fills the memory
                break
        if rest:
            yield rest
        for entry in self.artifact.files:
            if digest.hexdigest() != entry.sha256:
                raise IntegrityError(
                    f"{self.artifact.location}/{entry.path}: sha256 {digest.hexdigest()}, expected {entry.sha256}; "
                    f"the rows that were read are not the released ones: read them again"
                )

    def _block(self, first: int, group: list[Row]) -> RowBlock:
        import numpy as np

        dtype = np.uint16 if self.lines.vocab_size <= 1 << 16 else np.uint32
        tokens: npt.NDArray[Any] = np.array([ids for ids, _ in group], dtype=dtype)
        shaped = tokens.reshape(len(group), self.lines.row_tokens)
        return RowBlock(first=first, tokens=shaped, sources=tuple(source for _, source in group))

    def _row(self, number: int, line: bytes) -> Row:
        try:
            row: Any = json.loads(line)
            ids, source = row["token_ids"], row["source"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._bad(number, line, f"{type(error).__name__}: {error}") from error
        if not isinstance(ids, list) or len(ids) != self.lines.row_tokens or set(map(type, ids)) != {int}:
            raise self._bad(number, line, "token_ids of another length or type")
        if min(ids) < 0 or max(ids) >= self.lines.vocab_size:
            raise self._bad(number, line, f"a token that is not in 0 to {self.lines.vocab_size - 1}")
        if not isinstance(source, str):
            raise self._bad(number, line, f"source {source!r}")
        return ids, source

    def _bad(self, number: int, line: bytes, why: str) -> IntegrityError:
        path = self.lines.path.format(chunk=self.index)
        shown = line[:SHOWN].decode(errors="replace")
        return IntegrityError(
            f"{self.artifact.location}/{path}, line {number + 1}: read {shown!r}... ({why}), expected "
            f'{{"token_ids": [{self.lines.row_tokens} integers], "source": text}}; the file is cut or of another '
            f"layout: `registry pull {self.id}` brings it whole and checks its sha256"
        )
