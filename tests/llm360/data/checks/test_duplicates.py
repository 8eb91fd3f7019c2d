from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data.checks.duplicates import DuplicateParams, Duplicates, components, find_duplicates, signature
from llm360.data.checks.ngrams import words
from llm360.data.documents import Document, write_documents
from llm360.errors import ConfigError, IntegrityError
from llm360.files import write_manifest

PARAMS = DuplicateParams(shingle=3, bands=20, band_rows=6, similarity=0.7, seed=1)


def prose(seed: int, count: int = 200) -> list[str]:
    chance = random.Random(seed)
    return [f"w{chance.randrange(5000)}" for _ in range(count)]


def edited(text: list[str], *places: int) -> str:
    return " ".join("changed" if i in places else w for i, w in enumerate(text))


def write(folder: Path, texts: dict[str, str]) -> Path:
    kind = folder.name
    every = [Document(id=i, kind=kind, source="s", origin="o", licence="MIT", text=t) for i, t in texts.items()]
    write_manifest(folder, {"parts": write_documents(folder, every)})
    return folder


def found_in(tmp_path: Path, *kinds: dict[str, str], params: DuplicateParams = PARAMS) -> Duplicates:
    return find_duplicates({f"k{i}": write(tmp_path / f"k{i}", t) for i, t in enumerate(kinds)}, params)


def clusters(found: Duplicates, check: str) -> list[tuple[str, str, bool]]:
    return found.clusters.filter(pl.col("check") == check).select("cluster", "document", "kept").rows()


def test_exact_and_near_duplicates_are_told_apart_and_found_across_kinds(tmp_path):
    a, b = prose(1), prose(2)
    first = {"a1": edited(a), "b1": edited(b), "c1": edited(prose(3))}
    found = found_in(tmp_path, first, {"a2": edited(a), "b2": edited(b, 50, 120)})
    assert clusters(found, "exact") == [("a1", "a1", True), ("a1", "a2", False)]
    assert clusters(found, "near") == [("b1", "b1", True), ("b1", "b2", False)]
    (similarity,) = found.clusters.filter(document="b2")["similarity"]
    assert similarity == pytest.approx(192 / 204, abs=0.07)  # 198 shingles each, 6 of them changed


def test_texts_that_share_nothing_are_alone(tmp_path):
    assert found_in(tmp_path, {str(i): edited(prose(i)) for i in range(40)}).clusters.is_empty()


def test_the_result_does_not_depend_on_the_order_of_documents(tmp_path):
    base = prose(1)
    texts = {f"d{i}": edited(base, *range(10 * i, 10 * i + i % 3)) for i in range(12)}
    texts |= {"e": edited(base), "f": edited(base)}
    backwards = dict(reversed(texts.items()))
    one, other = (found_in(tmp_path / n, t) for n, t in (("one", texts), ("other", backwards)))
    assert one.clusters.equals(other.clusters)
    assert one.clusters.height > 12


def test_a_document_without_a_word_is_counted_and_is_like_none(tmp_path):
    found = found_in(tmp_path, {"a": "...", "b": "!!!", "c": "word", "d": "Word."})
    assert found.documents["empty"].to_list() == [True, True, False, False]
    assert clusters(found, "exact") == []
    assert clusters(found, "near") == [("c", "c", True), ("c", "d", False)]


def test_documents_that_are_another_ones_than_the_manifest_names_are_refused(tmp_path):
    folder = write(tmp_path / "k", {"a": "one text"})
    (folder / "documents" / "part_00000.parquet").write_bytes(b"cut")
    with pytest.raises(IntegrityError, match=r"part_00000\.parquet: 3 bytes, expected"):
        find_duplicates({"k": folder}, PARAMS)


@given(st.lists(st.text("ab c", max_size=12), min_size=1, max_size=6), st.integers(1, 4))
def test_equal_shingles_give_equal_signatures_wherever_a_text_stands(texts, shingle):
    params = DuplicateParams(shingle=shingle, bands=2, band_rows=4, similarity=0.5, seed=1)
    together, counts = signature(pl.Series(texts, dtype=pl.String), params)
    for text, signed, count in zip(texts, together, counts, strict=True):
        (alone,), (same,) = signature(pl.Series([text]), params)
        assert (signed == alone).all()
        assert count == same == len(words([text])[0])


@given(st.floats(0.1, 0.9))
def test_the_similarity_is_estimated_within_four_standard_errors(share):
    params = DuplicateParams(shingle=1, bands=16, band_rows=16, similarity=0.5, seed=3)
    common = round(400 * share)
    texts = [" ".join(f"{own if i >= common else 'x'}{i}" for i in range(400)) for own in "ab"]
    a, b = signature(pl.Series(texts), params)[0]
    assert abs((a == b).mean() - common / (800 - common)) < 4 * 0.5 / 16


@given(st.integers(1, 12), st.data())
def test_components_are_those_of_a_walk_along_the_edges(count, data):
    node = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    reach = [{i} for i in range(count)]
    for _ in range(count):
        for a, b in edges:
            reach[a] |= reach[b]
            reach[b] |= reach[a]
    a, b = (np.array([e[i] for e in edges], dtype=np.int64) for i in (0, 1))
    assert components(count, a, b).tolist() == [min(r) for r in reach]


def test_a_similarity_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="similarity: read 2, expected a Jaccard similarity"):
        DuplicateParams(shingle=3, bands=1, band_rows=1, similarity=2, seed=1)
