from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data import documents
from llm360.data.documents import (
    Document,
    PartWriter,
    part_path,
    parts,
    read_documents,
    read_part,
    write_documents,
    write_parts,
)
from llm360.errors import DataError, IntegrityError
from llm360.files import new_folder, sha256_bytes, write_manifest

ONLY = part_path(0)


def document(name: str, text: str = "text") -> Document:
    return Document(id=name, kind="book", source="s", origin=name, licence="MIT", text=text)


@pytest.fixture
def folder(tmp_path):
    with new_folder(tmp_path / "book") as partial:
        written = write_documents(partial, [document("a"), document("b")])
        write_manifest(partial, {"kind": "book", "parts": written})
    return tmp_path / "book"


def test_documents_come_back_in_their_order(folder):
    assert read_documents(folder)["id"].to_list() == ["a", "b"]


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=12),
    part_bytes=st.integers(1, 60),
    group_bytes=st.integers(1, 60),
)
def test_what_is_read_is_what_was_written_however_it_is_cut(tmp_path_factory, texts, part_bytes, group_bytes):
    folder, sent = tmp_path_factory.mktemp("kind"), [document(str(i), text) for i, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PART_BYTES", part_bytes)
        patch.setattr(documents, "GROUP_BYTES", group_bytes)
        write_manifest(folder, {"parts": write_parts(folder, sent, file=3)})
    found = parts(folder)
    rows = [row for part in found for table in read_part(folder, part) for row in table.to_pylist()]
    assert [Document(**{f.name: row[f.name] for f in dataclasses.fields(Document)}) for row in rows] == sent
    assert all(row["sha256"] == sha256_bytes(row["text"].encode()) for row in rows)
    assert [part.first for part in found] == [sum(p.documents for p in found[:i]) for i in range(len(found))]
    assert {part.file for part in found} == {3}
    assert all(part.bytes >= part_bytes for part in found[:-1])
    assert sum(part.bytes for part in found) == sum(row["bytes"] for row in rows) == sum(len(t.encode()) for t in texts)


def test_columns_alone_are_read_without_the_text(folder):
    (part,) = parts(folder)
    (table,) = read_part(folder, part, columns=["id", "bytes"])
    assert table.to_pydict() == {"id": ["a", "b"], "bytes": [4, 4]}


def test_altered_documents_are_refused_and_named(folder):
    data = bytearray((folder / ONLY).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / ONLY).write_bytes(bytes(data))
    for read in (read_documents, lambda f: list(read_part(f, parts(f)[0])), lambda f: _texts(f)):
        with pytest.raises(IntegrityError, match=r"part_00000\.parquet: sha256"):
            read(folder)


def _texts(folder):
    return list(read_part(folder, parts(folder)[0], columns=["text"]))


def test_a_manifest_that_does_not_name_the_documents_is_refused(folder, tmp_path):
    write_manifest(tmp_path / "empty", {"parts": [{"path": ONLY, "file": 0, "documents": 1, "bytes": 1}]})
    with pytest.raises(IntegrityError, match=r"does not name documents/part_00000\.parquet; rebuild"):
        parts(tmp_path / "empty")


def test_an_absent_kind_says_how_to_build_it(tmp_path):
    with pytest.raises(IntegrityError, match="not complete; rebuild it"):
        read_documents(tmp_path / "nothing")


def test_no_documents_are_refused(tmp_path):
    write_manifest(tmp_path / "empty", {"parts": []})
    with pytest.raises(DataError, match="no documents, expected at least one"):
        read_documents(tmp_path / "empty")
    with pytest.raises(DataError, match="gave no documents"):
        write_documents(tmp_path, [])


def test_an_id_used_twice_is_refused(tmp_path):
    with pytest.raises(DataError, match="document id 'a' is used twice"):
        write_documents(tmp_path, [document("a"), document("a")])


def test_a_part_that_fails_midway_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with PartWriter(tmp_path / "part.parquet") as writer:
            writer.add(document("a"))
            1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []


def test_a_group_is_bounded_by_its_documents_as_well(tmp_path):
    """Seen: a million documents of one letter were held at once, as only their text was counted."""
    tiny = [Document(id=f"{i}", kind="k", source="s", origin="o", licence="l", text="a") for i in range(5000)]
    with documents.PartWriter(tmp_path / "part.parquet") as writer:
        for document in tiny:
            writer.add(document)
            assert len(writer._group) <= documents.GROUP_BYTES / documents.ROW_BYTES
