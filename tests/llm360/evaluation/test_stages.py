from __future__ import annotations

import dataclasses

import polars as pl
import pytest
import torch
import yaml

import registry
from llm360.errors import IntegrityError
from llm360.files import entries, write_bytes, write_manifest
from stages import benchmarks, evaluate

PARAMS = {
    "runtime": {"threads": 1, "workers": 1, "ranks": 1, "replicas": 1, "trackers": []},
    "evaluation": {
        "benchmarks": {"source": "local"},
        "seed": 1234,
        "batch_size": 4,
        "checkpoints": {"amber-toy": [7, 2]},
        "tasks": {"arc_challenge": {"shots": 25, "limit": 2}, "hellaswag": {"shots": 10, "limit": None}},
    },
}


@dataclasses.dataclass
class Fake:
    suite: str
    ckpt: int
    path: object
    model: object
    tokenizer: object
    tokens_seen: int = 5


@pytest.fixture
def project(tmp_path, monkeypatch, make_model, tokenizer):
    def checkpoint(suite, *, ckpt):
        folder = tmp_path / "artifacts" / "checkpoints" / suite / f"ckpt_{ckpt:03d}"
        write_bytes(folder / "weights", bytes([ckpt]))
        write_manifest(folder, {})
        return Fake(suite, ckpt, folder, lambda: make_model(ckpt), lambda: tokenizer)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "checkpoint", checkpoint)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    yield tmp_path
    torch.use_deterministic_algorithms(False)


def test_from_params_to_rows(project, capsys):
    assert benchmarks.main([]) == 0
    for _ in range(2):
        assert evaluate.main(["--task", "arc_challenge"]) == 0
    out = project / "artifacts" / "evaluation" / "arc_challenge"
    assert [e.path for e in entries(out)] == [f"amber-toy/ckpt_{i:03d}.parquet" for i in (2, 7)] + ["fingerprint.json"]
    rows = pl.read_parquet(out / "amber-toy" / "ckpt_007.parquet")
    assert rows["ckpt"].to_list() == [7, 7]
    assert rows["benchmark"].to_list() == ["synthetic"] * 2
    assert "evaluating arc_challenge: 2/2" in capsys.readouterr().err


def test_an_error_is_one_line(project, capsys):
    with pytest.raises(SystemExit) as stop:
        evaluate.main(["--task", "arc_chalenge"])
    assert stop.value.code == 1
    assert (
        "error: ConfigError: evaluation.tasks: no 'arc_chalenge'; did you mean 'arc_challenge'"
        in capsys.readouterr().err
    )


def test_without_a_mirror(project, capsys):
    with pytest.raises(SystemExit) as stop:
        evaluate.main(["--task", "arc_challenge"])
    assert isinstance(stop.value.__cause__, IntegrityError)
    assert "artifacts/benchmarks: no manifest.json" in capsys.readouterr().err
