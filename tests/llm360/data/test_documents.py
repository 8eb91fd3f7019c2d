from __future__ import annotations

import polars as pl
import pytest

from llm360.data.documents import FILE, Document, read_documents, write_documents
from llm360.errors import DataError, IntegrityError
from llm360.files import new_folder, write_manifest


def document(name: str) -> Document:
    return Document(id=name, kind="book", source="s", origin=name, licence="MIT", text="text")


@pytest.fixture
def folder(tmp_path):
    with new_folder(tmp_path / "book") as partial:
        write_documents(partial, [document("a"), document("b")])
        write_manifest(partial, {"kind": "book"})
    return tmp_path / "book"


def test_documents_come_back_in_their_order(folder):
    assert read_documents(folder)["id"].to_list() == ["a", "b"]


def test_altered_documents_are_refused_and_named(folder):
    data = bytearray((folder / FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / FILE).write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"documents\.parquet: sha256"):
        read_documents(folder)


def test_a_manifest_that_does_not_name_the_documents_is_refused(folder):
    write_manifest(folder.parent, {})
    (folder.parent / FILE).write_bytes((folder / FILE).read_bytes())
    with pytest.raises(IntegrityError, match=r"does not name documents\.parquet"):
        read_documents(folder.parent)


def test_an_absent_kind_says_how_to_build_it(tmp_path):
    with pytest.raises(IntegrityError, match="not complete; rebuild it"):
        read_documents(tmp_path / "nothing")


def test_no_documents_are_refused(tmp_path, folder):
    pl.read_parquet(folder / FILE).clear().write_parquet(folder / FILE)
    write_manifest(folder, {"kind": "book"})
    with pytest.raises(DataError, match="no documents, expected at least one"):
        read_documents(folder)
    with pytest.raises(DataError, match="gave no documents"):
        write_documents(tmp_path, [])


def test_an_id_used_twice_is_refused(tmp_path):
    with pytest.raises(DataError, match="document id 'a' is used twice"):
        write_documents(tmp_path, [document("a"), document("a")])
