from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from llm360.errors import ConfigError
from llm360.evaluation.benchmarks import BenchmarkParams
from llm360.evaluation.harness import Benchmark, TaskParams
from llm360.evaluation.sweep import SCHEMA, EvaluationParams, Subject, read, sweep
from llm360.files import MANIFEST, entries, verify

PARAMS = TaskParams(shots=1, limit=3)


@pytest.fixture(scope="module")
def benchmark(mirror):
    return Benchmark(task="arc_challenge", params=PARAMS, seed=0, batch_size=4, benchmarks=mirror)


@pytest.fixture
def loads():
    return []


@pytest.fixture
def subjects(make_model, tokenizer, loads):
    def load(i):
        loads.append(i)
        return make_model(i), tokenizer

    totals = {"suite": "amber-toy", "manifest_sha256": "0" * 64}
    return [Subject(**totals, ckpt=i, tokens_seen=i * 10, load=lambda i=i: load(i)) for i in (3, 12, 40)]


def test_rows_of_every_checkpoint(tmp_path, benchmark, subjects):
    sweep(tmp_path, subjects, benchmark)
    rows = read(tmp_path)
    assert rows.schema == pl.Schema(SCHEMA)
    assert rows["ckpt"].to_list() == [3, 3, 12, 12, 40, 40]
    assert rows["metric"].to_list() == ["acc", "acc_norm"] * 3
    assert verify(tmp_path)["evaluated"] == [f"amber-toy/ckpt_{i:03d}.parquet" for i in (3, 12, 40)]


def test_finished_rows_are_skipped_and_bytes_are_equal(tmp_path, benchmark, subjects, loads):
    for folder in ("a", "b", "a"):
        sweep(tmp_path / folder, subjects, benchmark)
    assert loads == [3, 12, 40] * 2
    assert entries(tmp_path / "a") == entries(tmp_path / "b")


def test_interrupted_then_resumed_equals_straight(tmp_path, benchmark, subjects, loads):
    def broken():
        raise KeyboardInterrupt

    stopped = [subjects[0], dataclasses.replace(subjects[1], load=broken), subjects[2]]
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "a", stopped, benchmark)
    assert not (tmp_path / "a" / MANIFEST).exists()
    (tmp_path / "a" / "amber-toy" / ".partial-ckpt_012.parquet").write_bytes(b"half")
    sweep(tmp_path / "a", subjects, benchmark)
    assert loads == [3, 12, 40]
    sweep(tmp_path / "b", subjects, benchmark)
    assert entries(tmp_path / "a") == entries(tmp_path / "b")


def test_other_weights_or_settings_are_evaluated_again(tmp_path, mirror, benchmark, subjects, loads):
    sweep(tmp_path, subjects, benchmark)
    other = dataclasses.replace(subjects[1], manifest_sha256="1" * 64)
    sweep(tmp_path, [subjects[0], other, subjects[2]], benchmark)
    assert loads == [3, 12, 40, 12]
    settings = {"task": "arc_challenge", "seed": 0, "batch_size": 4, "benchmarks": mirror}
    sweep(tmp_path, subjects[:1], Benchmark(params=TaskParams(shots=2, limit=3), **settings))
    assert loads == [3, 12, 40, 12, 3]
    assert read(tmp_path)["shots"].to_list() == [2, 2]


def test_a_checkpoint_not_asked_for_goes(tmp_path, benchmark, subjects):
    sweep(tmp_path, subjects, benchmark)
    sweep(tmp_path, subjects[1:], benchmark)
    assert sorted(p.name for p in tmp_path.glob("*/*")) == ["ckpt_012.parquet", "ckpt_040.parquet"]


def test_a_damaged_file_is_made_anew(tmp_path, benchmark, subjects, loads):
    sweep(tmp_path, subjects, benchmark)
    before = entries(tmp_path)
    path = tmp_path / "amber-toy" / "ckpt_012.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    sweep(tmp_path, subjects, benchmark)
    assert loads == [3, 12, 40, 12]
    assert entries(tmp_path) == before


def test_a_task_without_params(tmp_path):
    params = EvaluationParams(
        benchmarks=BenchmarkParams(source="local"), seed=0, batch_size=4, checkpoints={}, tasks={"hellaswag": PARAMS}
    )
    with pytest.raises(ConfigError, match=r"evaluation.tasks: no 'helaswag'; did you mean 'hellaswag'"):
        params.benchmark("helaswag", benchmarks=tmp_path)
