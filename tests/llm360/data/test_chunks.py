from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from llm360.data.chunks import ChunkParams, ChunkReader, Ingredient, build_chunks, rows_by_kind
from llm360.data.tokenizer import encode
from llm360.errors import ConfigError, DataError, IntegrityError
from llm360.files import entries, new_folder, write_manifest

MIXTURE = {
    "arxiv": Ingredient(weight=1.0, part="all", epochs=1),
    "book": Ingredient(weight=3.0, part="all", epochs=2),
    "c4": Ingredient(weight=0.5, part="all", epochs=1),
}
PARAMS = ChunkParams(
    suite="tiny",
    phase="p",
    folder="tiny",
    tokenizer="tiny",
    sequence_length=32,
    first_chunk=4,
    chunks=20,
    rows_per_chunk=32,
    validation_rows=3,
    seed=7,
    mixture=MIXTURE,
)


def build(folder, documents, tokenizer, params=PARAMS):
    with new_folder(folder) as partial:
        write_manifest(partial, build_chunks(partial, documents, tokenizer.backend_tokenizer, params))
    return ChunkReader(folder)


@pytest.fixture(scope="module")
def reader(tmp_path_factory, documents, tokenizer):
    return build(tmp_path_factory.mktemp("chunks") / "tiny", documents, tokenizer)


@given(
    weights=st.dictionaries(st.text(min_size=1), st.floats(0.01, 100), min_size=1, max_size=9),
    rows=st.integers(0, 5000),
)
def test_rows_by_kind_sum_to_the_whole_and_stay_within_one_of_the_share(weights, rows):
    counts = rows_by_kind({k: Ingredient(weight=w, part="all", epochs=1) for k, w in weights.items()}, rows)
    total = sum(weights.values())
    assert sum(counts.values()) == rows
    assert all(abs(counts[k] - rows * w / total) < 1 + 1e-6 for k, w in weights.items())


def test_one_shard_file_is_one_chunk(reader):
    shards = [e["path"] for e in reader.manifest["files"] if e["path"].startswith("tokens.zarr/c/")]
    assert sorted(shards) == sorted(f"tokens.zarr/c/{i}/0" for i in range(20))
    assert reader.tokens(4).shape == (32, 33)
    assert reader.tokens(4).dtype == np.uint16


def test_every_row_is_rebuilt_exactly_from_its_documents(reader, documents, tokenizer):
    frame = pl.concat(documents.values())
    ids = {
        d: [*encode(tokenizer.backend_tokenizer, [t])[0].tolist(), tokenizer.eos_token_id]
        for d, t in frame.select("id", "text").rows()
    }
    for chunk in (4, 11, 23):
        for row, spans in zip(reader.tokens(chunk), reader.provenance(chunk)["spans"], strict=True):
            rebuilt = [ids[s["document"]][s["document_start"] :][: s["end"] - s["start"]] for s in spans]
            assert [t for part in rebuilt for t in part] == row.tolist()


def test_no_row_comes_more_often_than_its_epochs(reader):
    first = pl.col("spans").list.first().struct
    key = ("kind", "epoch", first.field("document"), first.field("document_start"))
    seen = pl.concat([reader.provenance(c).select(*key) for c in range(4, 24)])
    assert not seen.is_duplicated().any()
    assert seen.filter(pl.col("kind") != "book")["epoch"].max() == 0


def test_held_out_documents_are_never_trained_on(reader):
    validation = reader.validation()[1]
    held = {s["document"] for spans in validation["spans"] for s in spans}
    trained = {s["document"] for c in range(4, 24) for spans in reader.provenance(c)["spans"] for s in spans}
    assert held
    assert not held & trained
    assert dict(validation["kind"].value_counts().rows()) == dict.fromkeys(MIXTURE, 3)


def test_proportions_in_each_chunk_are_within_sampling_error(reader):
    """Chi-square over chunks and kinds; rows are drawn without replacement, hence the factor (N - n) / (N - 1)."""
    total, size = PARAMS.rows, PARAMS.rows_per_chunk
    counts = np.array([[(reader.provenance(c)["kind"] == k).sum() for k in MIXTURE] for c in range(4, 24)])
    share = counts.sum(axis=0) / total
    statistic = ((counts - size * share) ** 2 / (size * share)).sum() * (total - 1) / (total - size)
    degrees = (len(counts) - 1) * (len(MIXTURE) - 1)
    assert chi2.cdf(statistic, degrees) < 0.999
    expected = np.array([i.weight for i in MIXTURE.values()])
    np.testing.assert_allclose(share, expected / expected.sum(), atol=1 / total)


def test_the_same_inputs_give_the_same_bytes(tmp_path, documents, tokenizer, reader):
    again = build(tmp_path / "again", documents, tokenizer)
    assert entries(again.folder) == entries(reader.folder)


def test_counts_in_are_counts_out_and_counts_named(reader, documents, tokenizer):
    for kind, counts in reader.manifest["kinds"].items():
        assert counts["tokens_dropped_tail"] < 33
        assert counts["rows"] <= counts["rows_available"] * counts["epochs"]
        assert counts["rows"] == sum((reader.provenance(c)["kind"] == kind).sum() for c in range(4, 24))


def test_a_short_last_chunk_holds_what_is_left(tmp_path, documents, tokenizer):
    params = dataclasses.replace(PARAMS, last_chunk_rows=5)
    reader = build(tmp_path / "short", documents, tokenizer, params)
    assert [len(reader.tokens(c)) for c in (4, 22, 23)] == [32, 32, 5]
    assert [reader.rows(c) for c in (22, 23)] == [32, 5]
    assert len(reader.provenance(23)) == 5


def test_too_few_tokens_are_refused_with_the_arithmetic(tmp_path, documents, tokenizer):
    params = dataclasses.replace(PARAMS, chunks=2000)
    with pytest.raises(
        DataError, match=r"must give \d+ rows \(\d+ tokens\) but has \d+ rows x 1 epochs = \d+; add text"
    ):
        build(tmp_path / "large", documents, tokenizer, params)
    assert not list(tmp_path.iterdir())


def test_a_flipped_bit_in_a_shard_is_found_and_named(tmp_path, documents, tokenizer):
    reader = build(tmp_path / "flip", documents, tokenizer)
    shard = reader.folder / "tokens.zarr/c/3/0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"tokens\.zarr/c/3/0: sha256"):
        reader.tokens(7)
    assert len(reader.tokens(8)) == 32


def test_a_chunk_outside_the_phase_is_refused(reader):
    with pytest.raises(DataError, match="no chunk 24; it holds 4 to 23"):
        reader.tokens(24)


def test_parts_of_a_kind_do_not_overlap(documents):
    from llm360.data.rows import select_part

    frame = documents["arxiv"]
    even, odd = select_part(frame, "even"), select_part(frame, "odd")
    assert set(even["id"]) | set(odd["id"]) == set(frame["id"])
    assert not set(even["id"]) & set(odd["id"])
    assert len(select_part(frame, "first_tenth")) == math.ceil(len(frame) / 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunks": 0}, "chunks: read 0, expected a number above 0"),
        ({"rows_per_chunk": 0}, "rows_per_chunk: read 0"),
        ({"sequence_length": -1}, "sequence_length: read -1"),
        ({"last_chunk_rows": 40}, "last_chunk_rows: read 40, expected 1 to 32"),
        ({"mixture": {}}, "mixture: read no kind"),
    ],
)
def test_sizes_that_make_no_chunks_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(PARAMS, **change)


@pytest.mark.parametrize("change", [{"weight": 0.0}, {"weight": -1.0}, {"epochs": 0}])
def test_a_weight_or_an_epoch_below_one_is_refused(change):
    with pytest.raises(ConfigError, match="expected a number above 0"):
        dataclasses.replace(MIXTURE["book"], **change)
