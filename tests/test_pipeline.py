"""The whole pipeline by the real dvc at the smoke scale, killed on the way, against a run that was never killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import registry
from benchmarks.kill_repro import copy_project, differences, environment, hashes, run
from llm360.files import manifest_sha256, read_manifest, verify

pytestmark = pytest.mark.pipeline
AMBER, CRYSTAL = "amber-smoke", "crystal-smoke"


def kill_in(project: Path, stage: str) -> None:
    """Start ``dvc repro`` and kill it with SIGKILL one second into ``stage``."""
    with open(project / "repro.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro"], cwd=project, env=environment(project), stdout=log
        )
        for _ in range(3000):
            if f"Running stage '{stage}'" in (project / "repro.log").read_text():
                break
            time.sleep(0.1)
        time.sleep(1)
        process.kill()
        assert process.wait() == -9


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "project"
    copy_project(folder, "smoke")
    kill_in(folder, f"tokenize@{AMBER}")
    kill_in(folder, f"pretrain@{CRYSTAL}-phase2")
    run(folder, sys.executable, "-m", "stages.repro")
    return folder


@pytest.fixture
def store(project):
    with registry.use_store(registry.Workspace(project)):
        yield project / "artifacts"


def test_killed_and_resumed_it_equals_a_run_never_killed(project, tmp_path):
    copy_project(tmp_path / "whole", "smoke")
    run(tmp_path / "whole", sys.executable, "-m", "dvc", "repro")
    assert differences(hashes(project), hashes(tmp_path / "whole")) == []
    assert len(hashes(project)) > 200


def test_a_second_repro_does_nothing(project):
    assert "up to date" in run(project, sys.executable, "-m", "dvc", "repro")


def test_every_manifest_is_true(project):
    manifests = sorted((project / "artifacts").rglob("manifest.json"))
    assert len(manifests) > 30
    for manifest in manifests:
        verify(manifest.parent)


def test_every_row_is_rebuilt_from_the_documents_that_it_names(project):
    found = json.loads(run(project, sys.executable, "-m", "benchmarks.provenance"))
    assert found["different"] == 0
    assert found["rows"] == 2 * 6 * 48


@pytest.mark.parametrize(
    ("suite", "last"), [(AMBER, 5), (CRYSTAL, 5), ("amber-chat-smoke", 0), ("amber-safe-smoke", 0)]
)
def test_models_load_by_checkpoint_id_and_write_text(store, suite, last):
    model = registry.load(suite, ckpt=last)
    tokenizer = registry.checkpoint(suite, ckpt=last).tokenizer()
    prompt = tokenizer("def ", return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        out = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert not model.training
    assert model.dtype == torch.float32
    assert out.shape[1] > prompt["input_ids"].shape[1]


def test_checkpoints_are_a_chain_back_to_the_first_weights(store):
    for suite in (AMBER, CRYSTAL):
        parent = store / "init" / suite
        for i in range(6):
            child = registry.checkpoint(suite, ckpt=i)
            assert child.manifest["parent"] == manifest_sha256(parent)
            assert child.chunks_seen() == list(range(i + 1))
            parent = child.path


def test_the_loss_falls(store):
    losses = registry.load_metrics(AMBER)["loss"]
    assert losses[-6:].mean() < losses[:6].mean() - 0.3


def test_results_are_there_for_every_task_and_name_their_checkpoint(store):
    import polars as pl

    rows = pl.read_parquet(store / "evaluation/**/*.parquet")
    assert {"arc_challenge", "hellaswag", "mmlu", "truthfulqa_mc1"} <= set(rows["task"])
    for (suite, ckpt, sha), _ in rows.group_by("suite", "ckpt", "manifest_sha256"):
        assert sha == manifest_sha256(registry.checkpoint(suite, ckpt=ckpt).path)


def test_the_report_is_one_page_without_anything_from_outside(store):
    page = (store / "report/index.html").read_text()
    assert AMBER in page
    assert "<svg" in page
    assert 'src="http' not in page


def test_changing_an_analysis_parameter_touches_that_analysis_and_the_report(project):
    run(project, sys.executable, "-m", "stages.compose", "scale=smoke", "analyses.memorization.seed=99")
    log = run(project, sys.executable, "-m", "dvc", "repro")
    run(project, sys.executable, "-m", "stages.compose", "scale=smoke")
    run(project, sys.executable, "-m", "dvc", "repro", "-q")
    ran = {line.split("'")[1] for line in log.splitlines() if line.startswith("Running stage")}
    assert ran == {"analyze@memorization", "report"}


def test_a_fresh_clone_pulls_one_checkpoint_one_chunk_one_metric_file(project, tmp_path):
    store = tmp_path / "store"
    run(project, sys.executable, "-m", "dvc", "remote", "add", "--local", "-d", "here", str(store))
    run(project, sys.executable, "-m", "dvc", "push", "-q")
    clone = tmp_path / "clone"
    copy_project(clone, "smoke")
    (clone / "dvc.lock").write_bytes((project / "dvc.lock").read_bytes())
    run(clone, sys.executable, "-m", "dvc", "remote", "add", "--local", "-d", "here", str(store))
    one = f"artifacts/checkpoints/{AMBER}/ckpt_005"
    for target in (one, f"artifacts/chunks/{AMBER}/tokens.zarr/c/3/0", f"artifacts/metrics/{AMBER}/chunk_004.jsonl"):
        run(clone, sys.executable, "-m", "dvc", "pull", target)
        run(clone, sys.executable, "-m", "dvc", "pull", target)  # twice: DVC has deleted folders at the second time
    files = {p.relative_to(clone).as_posix() for p in (clone / "artifacts").rglob("*") if p.is_file()}
    assert {f.split("/ckpt_")[0] for f in files if "/ckpt_" in f} == {f"artifacts/checkpoints/{AMBER}"}
    assert {p.name for p in (clone / "artifacts/checkpoints" / AMBER).iterdir()} == {"ckpt_005"}
    verify(clone / one)
    assert read_manifest(clone / one) == read_manifest(project / one)
    assert f"artifacts/chunks/{AMBER}/tokens.zarr/c/3/0" in files
    assert f"artifacts/metrics/{AMBER}/chunk_004.jsonl" in files
    run(clone, sys.executable, "-m", "dvc", "pull")
    assert differences(hashes(clone), hashes(project)) == []


def test_dvc_shows_metrics_plots_and_the_graph(project):
    metrics = json.loads(run(project, sys.executable, "-m", "dvc", "metrics", "show", "--json"))
    assert metrics[""]["data"][f"artifacts/report/metrics/{AMBER}.json"]["data"]["steps"] == 36
    run(project, sys.executable, "-m", "dvc", "plots", "show", "--out", "plots", "-q")
    assert (project / "plots/index.html").is_file()
    assert f"pretrain@{CRYSTAL}-phase3" in run(project, sys.executable, "-m", "dvc", "dag", "--mermaid")


def test_wall_clocks_stay_under_timings(project):
    for path in (project / "artifacts").rglob("*.json*"):
        if "timings" not in path.parts:
            assert f'"{os.uname().nodename}"' not in path.read_text(), path
            assert str(project) not in path.read_text(), path
