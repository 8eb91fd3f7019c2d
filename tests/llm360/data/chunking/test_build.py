"""Laws of the whole way from documents to chunks."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zarr
from scipy.stats import chi2

from llm360.data.documents import Document, write_documents
from llm360.data.mixture import ChunkParams, Fim, Ingredient
from llm360.data.tokens.encoder import load_encoder
from llm360.data.tokens.fim import fill_in_the_middle, fim_ids
from llm360.errors import DataError, IntegrityError, StorageFull
from llm360.files import entries, write_manifest

FIM = Fim(rate=0.5, spm_rate=0.5, prefix="<|fim_prefix|>", middle="<|fim_middle|>", suffix="<|fim_suffix|>")
MIXTURE = {
    "arxiv": Ingredient(weight=1.0, part="all", epochs=1),
    "book": Ingredient(weight=8.0, part="all", epochs=2, fim=FIM),
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
    rows_per_chunk=144,
    validation_rows=3,
    seed=7,
    mixture=MIXTURE,
)
CHUNKS = range(4, 24)


@pytest.fixture(scope="module")
def reader(tmp_path_factory, make_chunks):
    return make_chunks(tmp_path_factory.mktemp("chunks") / "tiny", PARAMS)


@pytest.fixture(scope="module")
def encoder(tokenizer_folder):
    return load_encoder(tokenizer_folder)


@pytest.fixture(scope="module")
def rows(reader):
    """Return tokens and provenance of the whole phase."""
    return np.concatenate([reader.tokens(c) for c in CHUNKS]), pl.concat([reader.provenance(c) for c in CHUNKS])


def test_one_shard_file_is_one_chunk_and_zarr_reads_them(reader, rows):
    shards = [e["path"] for e in reader.manifest["files"] if e["path"].startswith("tokens.zarr/c/")]
    assert sorted(shards) == sorted(f"tokens.zarr/c/{i}/0" for i in range(20))
    np.testing.assert_array_equal(zarr.open_array(reader.folder / "tokens.zarr", mode="r")[:], rows[0])
    assert rows[0].dtype == np.uint16
    assert reader.manifest["encoder"].startswith("tiktoken ")


def test_every_row_is_rebuilt_exactly_from_its_documents(rows, documents, encoder):
    texts = dict(pl.concat(documents.values()).select("id", "text").rows())
    fim, streams = fim_ids(FIM, encoder), {}
    for tokens, (kind, epoch, spans) in zip(rows[0], rows[1].select("kind", "epoch", "spans").rows(), strict=True):
        rebuilt, text = [], b""
        for span in spans:
            key = (span["document"], epoch)
            if key not in streams:
                ids = encoder.encode([texts[span["document"]]])[0]
                changed = fill_in_the_middle(ids, fim, seed=7, document=key[0], epoch=epoch) if kind == "book" else None
                streams[key] = [*(ids if changed is None else changed).tolist(), encoder.eos]
                assert (span["byte_start"] is None) == (changed is not None)
            rebuilt += streams[key][span["document_start"] :][: span["end"] - span["start"]]
            if span["byte_start"] is not None:
                text += texts[span["document"]].encode()[span["byte_start"] : span["byte_end"]]
        assert rebuilt == tokens.tolist()
        if all(s["byte_start"] is not None for s in spans):
            assert text == encoder.decode_bytes(tokens[tokens != encoder.eos])


def test_no_row_comes_more_often_than_its_epochs(rows):
    first = pl.col("spans").list.first().struct
    seen = rows[1].select("kind", "epoch", first.field("document"), first.field("document_start"))
    assert not seen.is_duplicated().any()
    assert dict(seen.group_by("kind").agg(pl.col("epoch").max()).rows()) == {"arxiv": 0, "book": 1, "c4": 0}
    assert rows[1]["array_row"].to_list() == list(range(len(rows[1])))
    assert rows[1]["row"].to_list() == list(range(144)) * 20


def test_the_second_epoch_fills_in_other_middles(rows, encoder):
    """A document of both epochs has other tokens in them wherever one of them was changed."""
    middle = encoder.token_id("<|fim_middle|>")
    share = {kind: float((rows[0][(rows[1]["kind"] == kind).to_numpy()] == middle).mean()) for kind in MIXTURE}
    assert share["book"] > 0
    assert share["arxiv"] == share["c4"] == 0


@pytest.mark.parametrize(("rows_per_chunk", "epochs"), [(10, 1), (144, 2), (240, 3)])
def test_only_the_epochs_that_are_needed_are_packed(tmp_path, make_chunks, rows_per_chunk, epochs):
    mixture = {"book": dataclasses.replace(MIXTURE["book"], epochs=3)}
    made = make_chunks(
        tmp_path / "out",
        dataclasses.replace(PARAMS, mixture=mixture, rows_per_chunk=rows_per_chunk),
        work=tmp_path / "work",
    )
    assert len(list((tmp_path / "work" / "packed").glob("book-*.json"))) == epochs
    assert sum(n > 0 for n in made.manifest["kinds"]["book"]["rows_by_epoch"]) == epochs


def test_held_out_documents_are_never_trained_on(reader, rows):
    tokens, table = reader.validation()
    held = {s["document"] for spans in table["spans"] for s in spans}
    trained = {s["document"] for spans in rows[1]["spans"] for s in spans}
    assert held
    assert not held & trained
    assert len(tokens) == len(table)
    assert dict(table["kind"].value_counts().rows()) == dict.fromkeys(MIXTURE, 3)


def test_phases_of_one_seed_hold_out_the_same(tmp_path, make_chunks, reader):
    phases = {
        part: make_chunks(tmp_path / part, dataclasses.replace(
            PARAMS, phase=part, chunks=2, rows_per_chunk=30,
            mixture={k: dataclasses.replace(i, part=part, fim=None) for k, i in MIXTURE.items()},
        ))
        for part in ("even", "odd")
    }  # fmt: skip
    trained = []
    for other in phases.values():
        np.testing.assert_array_equal(other.validation()[0], reader.validation()[0])
        trained.append({s["document"] for c in (4, 5) for spans in other.provenance(c)["spans"] for s in spans})
    assert not trained[0] & trained[1]


def test_proportions_in_each_chunk_are_within_sampling_error(reader):
    """Chi-square over chunks and kinds; rows are drawn without replacement, hence the factor (N - n) / (N - 1)."""
    counts = np.array([reader.manifest["kinds_by_chunk"][k] for k in MIXTURE]).T
    total, size = counts.sum(), 144
    share = counts.sum(axis=0) / total
    statistic = ((counts - size * share) ** 2 / (size * share)).sum() * (total - 1) / (total - size)
    assert chi2.cdf(statistic, (len(counts) - 1) * (len(MIXTURE) - 1)) < 0.999
    expected = np.array([i.weight for i in MIXTURE.values()])
    np.testing.assert_allclose(share, expected / expected.sum(), atol=1 / total)


def test_counts_in_are_counts_out_and_counts_named(reader, rows, documents):
    for kind, counts in reader.manifest["kinds"].items():
        assert counts["documents"] + counts["documents_held_out"] == len(documents[kind])
        assert counts["tokens"] == counts["rows_available"] * 33 + counts["tokens_dropped_tail"]
        assert counts["tokens_dropped_tail"] == sum(t["tokens"] for t in counts["tail"]) < 33
        assert counts["rows"] == sum(counts["rows_by_epoch"]) == sum(reader.manifest["kinds_by_chunk"][kind])
        assert reader.manifest["kinds_by_chunk"][kind] == [(reader.provenance(c)["kind"] == kind).sum() for c in CHUNKS]


def test_the_order_in_which_a_mixture_names_its_kinds_does_not_show(tmp_path, make_chunks, reader):
    """Seen: JSON and DVC do not keep that order, and a build that it was changed under went on with another mix."""
    turned = dataclasses.replace(PARAMS, mixture=dict(reversed(MIXTURE.items())))
    assert entries(make_chunks(tmp_path / "turned", turned).folder) == entries(reader.folder)


def test_chunks_of_another_mix_in_the_work_folder_are_not_used(tmp_path, make_chunks, reader):
    for seed in (8, 7):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        for stale in ("packed", "held"):
            shutil.rmtree(tmp_path / "work" / stale, ignore_errors=True)
        made = make_chunks(tmp_path / "out", dataclasses.replace(PARAMS, seed=seed), work=tmp_path / "work")
    assert entries(made.folder) == entries(reader.folder)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_do_not_show(tmp_path, make_chunks, reader, workers):
    assert entries(make_chunks(tmp_path / "w", PARAMS, workers=workers).folder) == entries(reader.folder)


def test_a_build_that_dies_anywhere_goes_on_to_the_same_bytes(tmp_path, make_chunks, reader, monkeypatch):
    """It dies before every seventh rename; each time the finished files stay and are not made again."""
    work, replaced, budget = tmp_path / "work", [], [0]

    def replace(source, target):
        if budget[0] == 0:
            raise KeyboardInterrupt
        budget[0] -= 1
        replaced.append(Path(target).relative_to(work).as_posix() if Path(target).is_relative_to(work) else "")
        real(source, target)

    real = os.replace
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "replace", replace)
    deaths = 0
    while True:
        budget[0] = 7
        try:
            made = make_chunks(tmp_path / "out", PARAMS, work=work)
            break
        except KeyboardInterrupt:
            deaths += 1
            assert not (tmp_path / "out").exists()
    assert deaths > 10
    named = [n for n in replaced if n.endswith(".json") and n != "mix.json"]
    assert len(named) == len(set(named))
    assert entries(made.folder) == entries(reader.folder)


def test_all_there_is_in_equal_chunks(tmp_path, make_chunks):
    """Amber's mixture: all tokens of every kind, one epoch, equal chunks; what fills no chunk is counted."""
    mixture = {k: Ingredient(weight=None, part="all", epochs=1) for k in MIXTURE}
    params = dataclasses.replace(PARAMS, mixture=mixture, rows_per_chunk=None, chunks=7)
    kinds = (made := make_chunks(tmp_path / "all", params)).manifest["kinds"]
    rows = sum(k["rows"] for k in kinds.values())
    left = sum(k["rows_available"] for k in kinds.values()) - rows
    assert made.manifest["rows_per_chunk"] * 7 == rows
    assert 0 <= left < 7
    assert all(0 <= k["rows_available"] - k["rows"] <= left for k in kinds.values())


def test_a_short_last_chunk_holds_what_is_left(tmp_path, make_chunks):
    reader = make_chunks(tmp_path / "short", dataclasses.replace(PARAMS, chunks=3, last_chunk_rows=5))
    assert [len(reader.tokens(c)) for c in (4, 5, 6)] == [144, 144, 5]
    assert [reader.rows(c) for c in (5, 6)] == [144, 5]
    assert len(reader.provenance(6)) == 5


def test_some_rows_are_those_rows(reader):
    picked = np.array([143, 0, 3, 3, 64])
    np.testing.assert_array_equal(reader.some(9, picked), reader.tokens(9)[picked])


def test_too_few_tokens_are_refused_with_the_arithmetic(tmp_path, make_chunks):
    with pytest.raises(DataError, match=r"tiny: \w+: \d+ rows x 33 tokens = \d+ tokens are wanted, but it has .* rows"):
        make_chunks(tmp_path / "large", dataclasses.replace(PARAMS, chunks=2000))
    assert not list(tmp_path.iterdir())


def test_nothing_left_to_train_on_is_refused(tmp_path, make_chunks):
    with pytest.raises(DataError, match="none left after validation; add text"):
        make_chunks(tmp_path / "held", dataclasses.replace(PARAMS, validation_rows=10**5))


@pytest.mark.parametrize("text", ["-" * 3000, " " * 3000, "=-" * 1500])
def test_held_out_rows_are_all_there_whatever_a_token_is_long(tmp_path, make_chunks, tokenizer_folder, text):
    """Seen: rules and blanks have hundreds of bytes a token, and the candidates ended before the rows were full."""
    documents = [
        Document(id=f"d{i}", kind="rules", source="s", origin=f"{i}", licence="MIT", text=text + "x" * i)
        for i in range(300)
    ]
    (tmp_path / "rules").mkdir()
    write_manifest(tmp_path / "rules", {"parts": write_documents(tmp_path / "rules", documents)})
    mixture = {"rules": Ingredient(weight=None, part="all", epochs=1)}
    params = dataclasses.replace(PARAMS, mixture=mixture, rows_per_chunk=None, chunks=2, validation_rows=40)
    made = make_chunks(tmp_path / "out", params, sources={"rules": tmp_path / "rules"})
    assert len(made.validation()[0]) == 40


def test_a_full_disk_leaves_finished_work(tmp_path, make_chunks, reader, monkeypatch):
    work = tmp_path / "work"
    real = os.replace
    seen = []

    def full(source, target):
        seen.append(target)
        if len(seen) > 30:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageFull, match="no space left"):
        make_chunks(tmp_path / "out", PARAMS, work=work)
    monkeypatch.setattr(os, "replace", real)
    assert not (tmp_path / "out").exists()
    assert entries(make_chunks(tmp_path / "out", PARAMS, work=work).folder) == entries(reader.folder)


def test_a_flipped_bit_in_a_shard_is_found_and_named(tmp_path, make_chunks):
    reader = make_chunks(tmp_path / "flip", dataclasses.replace(PARAMS, chunks=4))
    shard = reader.folder / "tokens.zarr/c/3/0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"tokens\.zarr/c/3/0: sha256"):
        reader.tokens(7)
    assert len(reader.tokens(6)) == 144


def test_an_altered_document_is_found_before_it_is_read(tmp_path, make_chunks, sources):
    copied = {kind: shutil.copytree(folder, tmp_path / kind) for kind, folder in sources.items()}
    part = copied["c4"] / "documents/part_00000.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match=r"part_00000\.parquet: sha256"):
        make_chunks(tmp_path / "out", PARAMS, sources=copied)


def test_a_chunk_outside_the_phase_is_refused(reader):
    with pytest.raises(DataError, match="no chunk 24; it holds 4 to 23"):
        reader.tokens(24)
