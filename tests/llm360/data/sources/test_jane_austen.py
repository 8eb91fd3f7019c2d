from __future__ import annotations

import struct
import zlib

import pytest

from llm360.data.sources.jane_austen import novels, strings


def vector(lines: list[bytes | None], kind: int = 16) -> bytes:
    """Serialize a character vector as R does (XDR, format 3); None is NA."""
    head = b"X\n" + struct.pack(">iiii", 3, 0x040201, 0x030500, 5) + b"UTF-8" + struct.pack(">ii", kind, len(lines))
    return head + b"".join(struct.pack(">ii", 9, -1 if x is None else len(x)) + (x or b"") for x in lines)


def test_strings_of_a_vector():
    assert list(strings(vector([b"CHAPTER I", None, "Bront\u00eb".encode()]))) == [
        b"CHAPTER I",
        b"",
        "Bront\u00eb".encode(),
    ]


def test_objects_of_a_database_come_in_order(tmp_path):
    data = [vector([b"Emma"]), vector([b"Persuasion", b"by"])]
    (tmp_path / "Rdata.rdb").write_bytes(b"".join(struct.pack(">i", len(d)) + zlib.compress(d) for d in data))
    assert list(novels(tmp_path)) == [("Rdata.rdb/1", b"Emma"), ("Rdata.rdb/2", b"Persuasion\nby")]


def test_another_type_is_refused():
    with pytest.raises(ValueError, match="type 13, expected a character vector"):
        list(strings(vector([], kind=13)))
