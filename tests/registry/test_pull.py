"""``pull`` with the real dvc: folder outs, a remote, fresh clones, and what goes wrong with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import registry
from llm360.errors import IntegrityError, StoreUnavailable
from registry import ArtifactId, api
from registry.remote import file_md5

CKPT = "artifacts/checkpoints/toy-smoke/phase1/ckpt_00{}"
KINDS = ("checkpoints", "chunks", "metrics", "ledgers")


def sh(*words: str, cwd: Path) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)


def dvc(*words: str, cwd: Path) -> None:
    sh(sys.executable, "-m", "dvc", *words, cwd=cwd)


def pull(text: str) -> registry.Artifact:
    return api.pull(ArtifactId.parse(text))


@pytest.fixture(scope="module")
def pushed(built, tmp_path_factory) -> Path:
    """A project in git whose artifacts are in the remote beside it."""
    home = tmp_path_factory.mktemp("pushed")
    root = home / "project"
    shutil.copytree(built, root)
    sh("git", "init", "-q", cwd=root)
    dvc("init", "-q", cwd=root)
    for option in ("core.analytics=false", "cache.type=hardlink,copy"):
        dvc("config", *option.split("="), cwd=root)
    (root / "dvc.yaml").unlink()
    dvc("add", "-q", *(f"artifacts/{kind}/toy-smoke" for kind in KINDS), cwd=root)
    dvc("remote", "add", "-q", "-d", "store", "../remote", cwd=root)
    dvc("push", "-q", cwd=root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    sh("git", "add", "-A", cwd=root)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all", cwd=root)
    return home


@pytest.fixture
def clone(pushed, tmp_path, monkeypatch) -> Path:
    """A fresh clone, which is the working directory, with its own copy of the remote beside it."""
    shutil.copytree(pushed / "remote", tmp_path / "remote")
    sh("git", "clone", "-q", str(pushed / "project"), str(tmp_path / "clone"), cwd=tmp_path)
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.delenv("LLM360_HOME", raising=False)
    return tmp_path / "clone"


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def edit(path: Path) -> None:
    """Change one byte in place, so in every hard link of the file as well."""
    path.chmod(0o644)
    with open(path, "r+b") as handle:
        handle.write(b"#")


def test_pull_brings_one_artifact_alone_and_leaves_dvc_sound(clone):
    for artifact in ("toy-smoke/ckpt-1", "toy-smoke/chunk-2", "toy-smoke/log-0"):
        pull(artifact)
    files = [p.parent.as_posix() for p in (clone / "artifacts").rglob("*") if p.is_file() and "toy-smoke/" in str(p)]
    assert {p.split("toy-smoke/")[1] for p in files} == {
        "phase1", "phase1/ckpt_001", "phase2", "phase2/provenance", "phase2/tokens.zarr", "phase2/tokens.zarr/c/0",
    }  # fmt: skip
    dvc("pull", "-q", cwd=clone)
    assert len(list(clone.glob("artifacts/checkpoints/toy-smoke/*/ckpt_*/manifest.json"))) == 3


def test_a_chunk_and_a_log_are_enough_to_read_a_step(clone):
    for artifact in ("toy-smoke/chunk-2", "toy-smoke/log-2"):
        pull(artifact)
    batch = registry.data_at("toy-smoke", step=5)
    assert batch.tokens().tolist() == registry.load_chunk("toy-smoke", chunk=2).tokens[batch.rows].tolist()
    assert batch.provenance()["kind"].to_list() == ["book", "book"]


def _altered(clone: Path) -> None:
    edit(clone / CKPT.format(1) / "config.json")


def _stranger(clone: Path) -> None:
    (clone / CKPT.format(1) / "notes.txt").write_text("mine")


@pytest.mark.parametrize("spoil", [_altered, _stranger])
def test_without_cache_and_remote_nothing_is_deleted(clone, tmp_path, spoil):
    dvc("pull", "-q", cwd=clone)
    spoil(clone)
    before = snapshot(clone / "artifacts")
    for gone in (clone / ".dvc/cache", tmp_path / "remote"):
        shutil.rmtree(gone)
    with pytest.raises(
        StoreUnavailable, match=r"ckpt-1: .*DVC says: .*nothing here was changed; see `dvc remote list`"
    ):
        pull("toy-smoke/ckpt-1")
    assert snapshot(clone / "artifacts") == before


def test_a_file_too_many_is_named_and_kept(clone):
    pull("toy-smoke/ckpt-1")
    _stranger(clone)
    with pytest.raises(IntegrityError, match=r"notes.txt: not in manifest.json"):
        pull("toy-smoke/ckpt-1")
    assert (clone / CKPT.format(1) / "notes.txt").read_text() == "mine"


def test_an_altered_file_that_is_linked_to_the_cache_is_repaired(clone):
    dvc("pull", "-q", cwd=clone)
    weights = clone / CKPT.format(1) / "model.safetensors"
    before = weights.read_bytes()
    assert weights.stat().st_nlink > 1
    edit(weights)
    pull("toy-smoke/ckpt-1")
    assert weights.read_bytes() == before
    weights.unlink()
    pull("toy-smoke/ckpt-1")
    assert weights.read_bytes() == before


def test_an_altered_remote_is_refused(clone, tmp_path):
    for path in (tmp_path / "remote").rglob("*"):
        if path.is_file() and path.suffix != ".dir":
            edit(path)
    with pytest.raises(StoreUnavailable, match="not those of"):
        pull("toy-smoke/ckpt-1")
    assert not (clone / CKPT.format(1)).exists()


def test_a_pull_that_failed_does_not_spoil_the_next(clone, tmp_path, pushed):
    (tmp_path / "remote").rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable, match="ckpt-1"):
        pull("toy-smoke/ckpt-1")
    (tmp_path / "away").rename(tmp_path / "remote")
    md5 = file_md5(pushed / "project" / CKPT.format(0) / "model.safetensors")
    (tmp_path / "remote/files/md5" / md5[:2] / md5[2:]).unlink()
    with pytest.raises(StoreUnavailable, match=rf"ckpt-0: .*1 of [0-9]+ objects .*first {md5}; DVC says: .*{md5}"):
        pull("toy-smoke/ckpt-0")
    assert not (clone / CKPT.format(0)).exists()
    assert pull("toy-smoke/ckpt-1").files


def test_what_no_lock_records_says_so(clone):
    for path in clone.glob("artifacts/*/toy-smoke.dvc"):
        path.unlink()
    with pytest.raises(StoreUnavailable, match=r"ckpt-1: no dvc\.lock here records artifacts/checkpoints.*make repro"):
        pull("toy-smoke/ckpt-1")


def test_an_altered_log_is_repaired(clone):
    pull("toy-smoke/log-1")
    log = clone / "artifacts/metrics/toy-smoke/phase1/chunk_001.jsonl"
    before = log.read_bytes()
    log.write_bytes(before.replace(b"3.0", b"2.0"))
    pull("toy-smoke/log-1")
    assert log.read_bytes() == before
