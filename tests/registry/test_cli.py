from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from registry import ArtifactId, cli, suite
from registry.pull import targets


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*words: str):
        monkeypatch.setattr(sys, "argv", ["registry", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    return command


def test_ls_lists_suites_and_ids(workspace, run):
    code, out, _ = run("ls")
    assert code == 0
    assert "toy-smoke" in out
    code, out, err = run("ls", "toy-smoke", "--kind", "ckpt", "--json")
    assert json.loads(out) == [
        {"id": "toy-smoke/ckpt-0", "phase": "phase1"},
        {"id": "toy-smoke/ckpt-1", "phase": "phase1"},
        {"id": "toy-smoke/ckpt-2", "phase": "phase2"},
    ]
    assert err == ""


def test_ls_names_the_gaps_beside_the_data(workspace, run):
    code, out, err = run("ls", "amber", "--kind", "ckpt")
    assert code == 0
    assert out.splitlines()[-1] == "amber/ckpt-359  pretrain  main"
    assert "not released: optimizer" in err


def test_show_prints_manifest_and_hashes(workspace, run):
    code, out, _ = run("show", "toy-smoke/ckpt-1")
    assert code == 0
    assert "location: artifacts/checkpoints/toy-smoke/phase1/ckpt_001" in out
    assert "tokens_seen: 64" in out
    _, out, _ = run("show", "toy-smoke/ckpt-1", "--json")
    assert json.loads(out)["manifest"]["step"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "toy-smoke/ckpt_1"], "InvalidId: read 'toy-smoke/ckpt_1'"),
        (["show", "toy-smok/ckpt-1"], "UnknownSuite: unknown suite 'toy-smok'; did you mean 'toy-smoke'"),
        (["show", "toy-smoke/ckpt-9"], "NotFound: toy-smoke/ckpt-9: not in this suite; nearest: toy-smoke/ckpt-2"),
        (["show", "amber/optimizer-9"], "NotReleased: amber/optimizer-9"),
        (["pull", "amber-mini/ckpt-9"], "StoreUnavailable: amber-mini/ckpt-9: .* is no DVC workspace"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_1(workspace, run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert re.match(f"error: {message}", err)


def test_pull_of_what_is_whole_asks_for_nothing(workspace, run):
    code, out, err = run("pull", "toy-smoke/ckpt-1")
    assert (code, out.strip()) == (0, "artifacts/checkpoints/toy-smoke/phase1/ckpt_001")
    assert "already here and whole" in err


def test_pull_asks_for_exactly_what_is_needed(workspace):
    def wanted(text):
        return targets(workspace, suite("toy-smoke"), ArtifactId.parse(text))

    assert wanted("toy-smoke/ckpt-2") == ["artifacts/checkpoints/toy-smoke/phase2/ckpt_002"]
    assert wanted("toy-smoke/log-1") == ["artifacts/metrics/toy-smoke/phase1/chunk_001.jsonl"]
    folder = "artifacts/chunks/toy-smoke/phase2"
    assert wanted("toy-smoke/chunk-2") == [
        f"{folder}/tokens.zarr/c/0/0", f"{folder}/tokens.zarr/zarr.json", f"{folder}/provenance/chunk_002.parquet",
        f"{folder}/manifest.json",
    ]  # fmt: skip


def test_pull_brings_one_artifact_alone_and_repairs_it(workspace, run, tmp_path, flip_bit, monkeypatch):
    """The real dvc: folder outs with a remote, a fresh clone, one checkpoint, one chunk, one log."""

    def sh(*words, cwd):
        subprocess.run(words, cwd=cwd, check=True, capture_output=True)

    root, clone = workspace.root, tmp_path / "fresh"
    sh("git", "init", "-q", cwd=root)
    dvc = (sys.executable, "-m", "dvc")
    sh(*dvc, "init", "-q", cwd=root)
    sh(*dvc, "config", "core.analytics", "false", cwd=root)
    (root / "dvc.yaml").unlink()
    outs = [f"artifacts/{kind}/toy-smoke" for kind in ("checkpoints", "chunks", "metrics")]
    sh(*dvc, "add", "-q", *outs, cwd=root)
    sh(*dvc, "remote", "add", "-q", "-d", "store", str(tmp_path / "remote"), cwd=root)
    sh(*dvc, "push", "-q", cwd=root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    sh("git", "add", "-A", cwd=root)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all", cwd=root)
    sh("git", "clone", "-q", str(root), str(clone), cwd=tmp_path)
    monkeypatch.chdir(clone)
    for artifact in ("toy-smoke/ckpt-1", "toy-smoke/chunk-2", "toy-smoke/log-0"):
        assert run("pull", artifact)[0] == 0
    files = sorted(
        p.parent.as_posix() for p in (clone / "artifacts").rglob("*") if p.is_file() and "toy-smoke/" in str(p)
    )
    assert {p.split("toy-smoke/")[1] for p in files} == {
        "phase1", "phase1/ckpt_001", "phase2", "phase2/provenance", "phase2/tokens.zarr", "phase2/tokens.zarr/c/0",
    }  # fmt: skip
    weights = clone / "artifacts/checkpoints/toy-smoke/phase1/ckpt_001/model.safetensors"
    weights.chmod(0o644)
    flip_bit(weights)
    code, _, err = run("pull", "toy-smoke/ckpt-1")
    assert code == 0, err
    assert "dvc pull" in err
    sh(*dvc, "pull", "-q", cwd=clone)  # a full pull after partial ones: they left DVC's records sound
    assert len(list(clone.glob("artifacts/checkpoints/toy-smoke/*/ckpt_*/manifest.json"))) == 3
