from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data.documents import Document, read_documents
from llm360.data.documents import parts as parts_of
from llm360.data.packaged import collect as collecting
from llm360.data.packaged.collect import Selection, collect, parts, sample
from llm360.data.packaged.packages import DebianPackage, fetch_packages
from llm360.data.sources import Source
from llm360.errors import ConfigError, DataError, IntegrityError, SourceError
from llm360.files import MANIFEST, entries, sha256_file, verify


def document(source: str, number: int, size: int) -> Document:
    name = f"{source}/{number}"
    return Document(id=name, kind="c4", source=source, origin=str(number), licence="MIT", text="x" * size)


@given(st.text(alphabet=st.sampled_from("ab\n é日𝄞"), max_size=200), st.integers(4, 50))
def test_parts_join_to_the_text_and_are_short_enough(text, limit):
    pieces = parts(text, limit)
    assert "".join(pieces) == text
    assert all(len(p.encode()) <= limit for p in pieces)


@given(st.lists(st.text("ab", min_size=1, max_size=8), min_size=1), st.integers(10, 40))
def test_parts_are_cut_between_paragraphs(paragraphs, limit):
    for piece in parts("\n\n".join(paragraphs), limit)[:-1]:
        assert piece.endswith("\n\n")


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 30), min_size=1), min_size=1), st.integers(30, 300)
)
def test_a_sample_keeps_the_limit_and_shares_it_equally(sizes, limit):
    pools = {name: [document(name, i, size) for i, size in enumerate(found)] for name, found in sizes.items()}
    taken = sample(pools, limit=limit)
    got = {name: sum(len(d.text) for d in found) for name, found in taken.items()}
    assert sum(got.values()) <= limit
    assert all(set(taken[n]) <= set(pools[n]) for n in pools)
    for name in pools:  # who got less than another gave all that it had, or is one document behind
        assert len(taken[name]) == len(pools[name]) or got[name] >= max(got.values()) - 30


def test_a_larger_limit_only_adds():
    pools = {"a": [document("a", i, 10) for i in range(50)]}
    small, large = sample(pools, limit=100), sample(pools, limit=200)
    assert len(small["a"]) == 10
    assert large["a"][:10] == small["a"]


def test_a_limit_below_every_document_is_an_error():
    with pytest.raises(DataError, match="no document fits into 5 bytes; raise limit_mb"):
        sample({"a": [document("a", 0, 10)]}, limit=5)


TEXTS = {
    "doc/a.txt": b"one",
    "doc/b.txt": "zwei \u00fc\n\n".encode() + b"long " * 400,
    "doc/bad.txt": b"\xff\xfe",
    "doc/blank.txt": b" \n ",
    "doc/copy.txt": b"one",
    "other/c.bin": b"never read",
}


@pytest.fixture
def packages(make_deb, tmp_path, monkeypatch):
    """Fetch a fake package, and let the source ``fake`` read it."""
    from llm360.data.packaged import packages as fetching
    from llm360.data.packaged.readers import files

    deb = make_deb(TEXTS)
    monkeypatch.setattr(fetching, "_fetch_debian", lambda names, to: (to / deb.name).write_bytes(deb.read_bytes()))
    folder = tmp_path / "packages"
    folder.mkdir()
    fetch_packages([DebianPackage("fake")], folder)
    source = Source(
        name="fake", kind="c4", packages=(DebianPackage("fake"),), reads=("doc/*",), licence="MIT", documents=files
    )
    monkeypatch.setattr(collecting, "named", lambda names, kind: [source])
    return folder


SELECTION = Selection(names=("fake",), limit_mb=1.0, part_kb=1)


def collected(packages, folder):
    folder.mkdir()
    collect("c4", SELECTION, packages=packages, out=folder)
    return folder


def test_every_document_is_counted_or_named_with_a_reason(packages, tmp_path):
    out = collected(packages, tmp_path / "out")
    manifest = verify(out)
    frame = read_documents(out)
    assert frame["id"].to_list() == [
        "fake/doc/a.txt",
        "fake/doc/b.txt#0001",
        "fake/doc/b.txt#0002",
        "fake/doc/b.txt#0003",
    ]
    reasons = {s["origin"]: s["reason"] for s in manifest["skipped"]}
    assert reasons == {
        "fake/doc/bad.txt": "not UTF-8 at byte 0",
        "fake/doc/blank.txt": "no text",
        "fake/doc/copy.txt": "same text as fake/doc/a.txt",
    }
    assert [(p.file, p.first, p.documents) for p in parts_of(out)] == [(0, 0, 4)]
    assert (manifest["documents"], manifest["bytes"]) == (4, sum(len(t.encode()) for t in frame["text"]))
    (used,) = manifest["sources"]
    assert used["skipped"] == 3
    assert used["over_limit"] == {"documents": 0, "bytes": 0}
    assert [(p["name"], p["version"]) for p in used["packages"]] == [("fake", "1:2.0-1")]


def test_the_same_packages_give_the_same_bytes(packages, tmp_path):
    first, second = collected(packages, tmp_path / "1"), collected(packages, tmp_path / "2")
    assert entries(first) == entries(second)
    assert sha256_file(first / MANIFEST) == sha256_file(second / MANIFEST)


def test_an_altered_package_is_refused(packages, tmp_path):
    (deb,) = packages.glob("*.deb")
    deb.write_bytes(deb.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match=r"fake_1%3a2\.0-1_all\.deb: sha256"):
        collected(packages, tmp_path / "out")


@pytest.mark.parametrize(("content", "reason"), [(b"\xff", "not UTF-8 at byte 0"), (b" ", "no text")])
def test_a_source_whose_documents_are_all_bad_is_an_error(packages, tmp_path, monkeypatch, content, reason):
    bad = Source(
        name="bad", kind="c4", packages=(), reads=(), licence="MIT", documents=lambda _: iter([("x", content)])
    )
    monkeypatch.setattr(collecting, "named", lambda names, kind: [bad])
    with pytest.raises(DataError, match=f"no document out of 1 \\(bad/x: {reason}"):
        collected(packages, tmp_path / "out")


def test_a_reader_that_fails_is_named(packages, tmp_path, monkeypatch):
    odd = Source(name="od-d", kind="c4", packages=(), reads=(), licence="MIT", documents=lambda _: 1 / 0)
    monkeypatch.setattr(collecting, "named", lambda names, kind: [odd])
    with pytest.raises(SourceError, match=r"od-d: its reader failed \(ZeroDivisionError.*sources/od_d\.py"):
        collected(packages, tmp_path / "out")


@pytest.mark.parametrize("field", ["limit_mb", "part_kb", "tokens"])
def test_a_selection_of_nothing_is_refused(field):
    with pytest.raises(ConfigError, match=f"{field}: read 0, expected a number above 0"):
        Selection(**{"names": ("fake",), "limit_mb": 1.0, "part_kb": 1, field: 0})
