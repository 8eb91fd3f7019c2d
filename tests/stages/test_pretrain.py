"""The stage itself: what it refuses leaves what existed, and ranks are launched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from llm360.files import entries, write_manifest
from stages import pretrain

RUNTIME = {"threads": 1, "workers": 1, "ranks": 1, "replicas": 1, "trackers": []}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A workspace with what the stage reads first: a start and chunks, of which only the manifests matter here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages._stage.end_without_parent", lambda: None)
    start, chunks = Path("artifacts/init/toy"), Path("artifacts/chunks/toy")
    for folder in (start, chunks):
        folder.mkdir(parents=True)
    (start / "config.json").write_text(json.dumps({"max_position_embeddings": 8}))
    (start / "state.json").write_text("{}")
    known = {"suite": "toy", "tokenizer_sha256": "a"}
    write_manifest(start, known | {"phase": "init", "dtype": "float32", "optimizer": True})
    numbers = {"sequence_length": 16, "first_chunk": 0, "chunks": 1, "rows_per_chunk": 8, "last_chunk_rows": None}
    write_manifest(chunks, known | numbers | {"format": "llm360-chunks/2", "phase": "pretrain", "dtype": "uint16"})
    made = Path("artifacts/checkpoints/toy")
    made.mkdir(parents=True)
    (made / "fingerprint.json").write_text('{"of": "another recipe"}')
    return made


def configure(**changed):
    section = {
        "suite": "toy", "phase": "pretrain", "folder": "toy", "start": "init/toy", "branch": None, "seed": 1,
        "batch_size": 4, "micro_batch_size": 4, "on_nonfinite": "stop", "planted_nan": [],
        "compute": {"precision": "fp32", "compile": False, "activation_checkpointing": False},
        "optimizer": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
        "schedule": {"kind": "cosine", "peak": 1e-3, "end": 1e-4, "warmup_steps": 1, "total_steps": 2, "begin": 0},
    }  # fmt: skip
    runtime = RUNTIME | {k: v for k, v in changed.items() if k in RUNTIME}
    Path("params.yaml").write_text(yaml.safe_dump({"runtime": runtime, "pretrain": {"toy": section}}))


def test_what_is_refused_removes_nothing_that_another_recipe_made(project, capsys):
    configure()
    before = entries(project)
    with pytest.raises(SystemExit):
        pretrain.main(["--phase", "toy"])
    assert "rows of 16 tokens, but the model of artifacts/init/toy was built for 8" in capsys.readouterr().err
    assert entries(project) == before


@pytest.mark.parametrize(("address", "way"), [("", "launch"), ("auto", "on_ray")])
def test_several_ranks_are_launched_here_or_on_ray(project, monkeypatch, address, way):
    configure(ranks=3)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(pretrain, "end_without_parent", lambda: None)
    called = []
    for name in ("launch", "on_ray"):
        monkeypatch.setattr(pretrain, name, lambda *a, name=name, **k: called.append((name, a, k)) or 7)
    assert pretrain.main(["--phase", "toy"]) == 7
    assert called == [(way, ("stages.pretrain", ["--phase", "toy"]), {"ranks": 3})]


def test_a_tracker_that_there_is_not_removes_nothing_either(project, capsys):
    configure(trackers=["dvcliv"])
    before = entries(project)
    with pytest.raises(SystemExit):
        pretrain.main(["--phase", "toy"])
    assert "unknown name 'dvcliv'; did you mean 'dvclive'" in capsys.readouterr().err
    assert entries(project) == before
