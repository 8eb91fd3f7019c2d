"""Jane Austen's six novels, from the R package janeaustenr."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import Text
from llm360.data.sources import Source

STRINGS = 16  # R's SEXP type of a character vector


def novels(root: Path) -> Iterator[Text]:
    """Yield each object of R's database: four bytes of size, then a zlib stream of serialized data, end to end."""
    (path,) = root.rglob("Rdata.rdb")
    rest, number = path.read_bytes(), 0
    while rest:
        stream = zlib.decompressobj()
        data = stream.decompress(rest[4:])
        rest, number = stream.unused_data, number + 1
        yield f"Rdata.rdb/{number}", b"\n".join(strings(data))


def strings(data: bytes) -> Iterator[bytes]:
    """Yield the elements of a character vector in R's binary serialization (XDR, format 3)."""
    at = 18 + _integer(data, 14)  # "X\n", three versions, the length and name of the encoding
    if _integer(data, at) & 0xFF != STRINGS:
        raise ValueError(f"type {_integer(data, at) & 0xFF}, expected a character vector ({STRINGS})")
    count, at = _integer(data, at + 4), at + 8
    for _ in range(count):
        size = max(0, _integer(data, at + 4))  # -1 is NA
        yield data[at + 8 : at + 8 + size]
        at += 8 + size


def _integer(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


SOURCE = Source(
    name="jane-austen",
    kind="book",
    packages=(DebianPackage("r-cran-janeaustenr"),),
    reads=("usr/lib/R/*/janeaustenr/data/Rdata.rdb",),
    licence="public domain (package: MIT)",
    documents=novels,
)
