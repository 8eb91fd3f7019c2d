from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import registry
from analyses import data
from analyses.common import data_tables
from analyses.common.items import benchmark_items
from analyses.common.run import run
from analyses.common.sources import readers
from analyses.data import Params, texts
from llm360.data.checks.contamination import ContaminationParams
from llm360.data.checks.duplicates import DuplicateParams
from llm360.data.tokens.encoder import load_encoder
from llm360.errors import ConfigError, IntegrityError
from llm360.files import read_json, read_manifest, sha256_file, write_manifest

PARAMS = Params(
    suites=["amber-toy", "crystal-toy"],
    tasks=["arc_challenge", "hellaswag"],
    contamination=ContaminationParams(ngram=8, threshold=0.3, rows_listed=3),
    duplicates=DuplicateParams(shingle=5, bands=4, band_rows=4, similarity=0.8, seed=1),
)


def frame_of(suite: str, params: Params = PARAMS) -> pl.DataFrame:
    return pl.DataFrame(data.rows(registry.suite(suite), params), infer_schema_length=None)


@pytest.fixture(scope="module")
def found(trained) -> pl.DataFrame:
    with registry.use_store(registry.Workspace(trained)):
        return pl.concat([frame_of(s) for s in PARAMS.suites], how="diagonal_relaxed")


@pytest.fixture
def frame(workspace, found) -> pl.DataFrame:
    return found


@pytest.fixture
def planted(workspace, monkeypatch) -> dict:
    """Put a text of three rows of a chunk into the benchmarks as an item, and return where it stands."""
    encoder = load_encoder(workspace.artifacts / "tokenizers" / "amber-toy")
    (reader,) = readers(registry.suite("amber-toy"))
    rows = texts(encoder, reader.tokens(2))
    item = {"task": "arc_challenge", "item": "planted", "text": " ".join(rows[3:6])}
    clean = {"task": "arc_challenge", "item": "clean", "text": " ".join(f"nowhere{i}" for i in range(50))}
    monkeypatch.setattr(data, "benchmark_items", lambda mirror, tasks: pl.DataFrame([item, clean]))
    return item


def test_the_text_of_a_row_is_that_of_its_documents(workspace, documents):
    encoder = load_encoder(workspace.artifacts / "tokenizers" / "amber-toy")
    (reader,) = readers(registry.suite("amber-toy"))
    every = dict(pl.concat(documents.values()).select("id", "text").rows())
    for row, spans in zip(texts(encoder, reader.tokens(0)), reader.provenance(0)["spans"], strict=True):
        parts = [every[s["document"]].encode()[s["byte_start"] : s["byte_end"]] for s in spans]
        assert row == "\n".join(p.decode(errors="replace") for p in parts if p)


def test_sources_sum_to_kinds_and_kinds_to_all_tokens_of_the_chunks(frame):
    tokens = data_tables.tokens(frame)
    by_source = data_tables.table(frame, "source").group_by("suite", "phase", "kind").agg(pl.col("tokens").sum())
    key = ["suite", "phase", "kind"]
    assert by_source.sort(key).equals(tokens.select(*key, "tokens").sort(key))
    stored = {s: sum(r.tokens(c).size for r in readers(registry.suite(s)) for c in _chunks(r)) for s in PARAMS.suites}
    assert dict(tokens.group_by("suite").agg(pl.col("tokens").sum()).rows()) == stored
    assert tokens["weight"].to_list() == pytest.approx([1 / 3] * len(tokens))


def _chunks(reader) -> range:
    return range(reader.manifest["first_chunk"], reader.manifest["first_chunk"] + reader.manifest["chunks"])


def test_rows_by_kind_of_a_chunk_are_those_of_its_provenance(frame):
    (reader,) = readers(registry.suite("amber-toy"))
    for chunk in _chunks(reader):
        rows = data_tables.table(frame, "chunk").filter(suite="amber-toy", chunk=chunk).filter(pl.col("rows") > 0)
        assert dict(rows.select("kind", "rows").rows()) == dict(reader.provenance(chunk)["kind"].value_counts().rows())


def test_kinds_of_code_are_told_by_their_name():
    kinds = {"starcoderdata": 30, "python": 10, "c4": 60}
    mixture = {"suite": "s", "check": "mixture", "phase": "p", "rows": 1, "weight": 1.0}
    frame = pl.DataFrame([{**mixture, "kind": kind, "tokens": tokens} for kind, tokens in kinds.items()])
    assert data_tables.code_share(frame) == {"s": 0.4}


def test_chi_square_is_given_by_phase_and_over_the_phases_that_have_several_chunks(frame):
    found = data_tables.chi_squares(frame)
    assert found.select("suite", "phase", "degrees").rows() == [
        ("amber-toy", "pretrain", 4),
        ("crystal-toy", "phase1", 2),
    ]
    doubled = pl.concat([frame, frame.filter(suite="crystal-toy", phase="phase1").with_columns(phase=pl.lit("again"))])
    *_, one, other, both = data_tables.chi_squares(doubled).filter(suite="crystal-toy").to_dicts()
    assert both["phase"] == "all"
    assert both["statistic"] == pytest.approx(one["statistic"] + other["statistic"])
    assert both["degrees"] == one["degrees"] + other["degrees"]


def test_a_planted_item_is_hit_and_its_rows_are_named(planted):
    frame = frame_of("amber-toy")
    (summary,) = data_tables.contamination(frame).to_dicts()
    assert (summary["items"], summary["checked"], summary["hit"]) == (2, 2, 1)
    assert 0.3 <= summary["largest_share"] < 1  # what runs over the seams of the three rows is lost
    found = data_tables.contaminated(frame)
    assert set(found["item"]) == {"planted"}
    assert set(found.select("chunk", "row").rows()) == {(2, 3), (2, 4), (2, 5)}


def test_a_clean_benchmark_has_no_hit(frame):
    counts = data_tables.contamination(frame)
    assert counts["checked"].sum() > 0
    assert counts["hit"].to_list() == [0] * 4
    assert data_tables.contaminated(frame).is_empty()


def test_a_document_that_is_there_twice_is_counted(workspace, frame):
    assert data.summary(frame)["amber-toy/duplicates/exact"] == 0
    twice = data_tables.SCHEMAS["cluster"] | {"suite": pl.String, "check": pl.String}
    row = {"suite": "amber-toy", "check": "cluster", "how": "exact", "cluster": "a", "document": "b", "kind": "c4"}
    added = pl.concat([frame, pl.DataFrame([{**row, "similarity": 1.0, "kept": False}], schema=twice)], how="diagonal")
    assert data.summary(added)["amber-toy/duplicates/exact"] == 1
    assert data_tables.duplicates(added).filter(suite="amber-toy", kind="c4")["exact"].to_list() == [1]


def test_documents_of_another_build_than_the_chunks_are_refused(workspace):
    folder = workspace.artifacts / "sources" / "book"
    write_manifest(folder, {**read_manifest(folder), "documents": 5})
    with pytest.raises(IntegrityError, match=r"sources/book: its manifest's sha256 is .*dvc repro"):
        frame_of("amber-toy")


def test_an_unknown_task_is_named_with_the_nearest(workspace):
    params = dataclasses.replace(PARAMS, tasks=["arc_chalenge"])
    with pytest.raises(ConfigError, match=r"no task 'arc_chalenge'; did you mean 'arc_challenge'"):
        frame_of("amber-toy", params)


def test_an_item_is_its_question_and_the_right_answer(workspace):
    items = benchmark_items(
        workspace.artifacts / "benchmarks", ["arc_challenge", "hellaswag", "mmlu", "truthfulqa_mc1"]
    )
    first = items.group_by("task", maintain_order=True).first()
    assert first.rows() == [
        ("arc_challenge", "ARC-Challenge/test/0", "What is 2 plus 40? 42"),
        ("hellaswag", "default/validation/0", "A child asks: What is 2 plus 40? the teacher writes 42."),
        ("mmlu", "abstract_algebra/test/0", "What is 2 plus 40? 42"),
        ("truthfulqa_mc1", "multiple_choice/validation/0", "What is 2 plus 40? It is 42."),
    ]


def _run(folder: Path) -> dict[str, str]:
    run(data, PARAMS, folder, name="data", recipe={})
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_two_runs_write_equal_bytes_and_all_tables(workspace, tmp_path):
    files = _run(tmp_path / "a")
    assert files == _run(tmp_path / "b")
    assert {
        f"{name}.csv" for name in data.plots(pl.read_parquet(tmp_path / "a" / "rows" / "amber-toy.parquet"))
    } <= set(files)
    assert {"figures/sources-amber-toy.svg", "figures/contamination-crystal-toy.svg"} <= set(files)
    summary = read_json(tmp_path / "a" / "summary.json")
    assert summary["amber-toy/contamination/arc_challenge/items_hit"] == 0
    assert 0 <= summary["amber-toy/chi_square/p"] <= 1


def test_a_suite_without_any_finding_has_its_tables_and_figures(workspace, monkeypatch):
    """No item at all, as a mirror without the tasks' splits would give."""
    empty = pl.DataFrame(schema=dict.fromkeys(("task", "item", "text"), pl.String))
    monkeypatch.setattr(data, "benchmark_items", lambda mirror, tasks: empty)
    frame = frame_of("amber-toy")
    assert data.plots(frame)["contamination"].is_empty()
    assert set(data.figures(frame, PARAMS)) == {"sources-amber-toy", "contamination-amber-toy"}
    assert not any("contamination" in key for key in data.summary(frame))
    assert np.isfinite(list(data.summary(frame).values())).all()
