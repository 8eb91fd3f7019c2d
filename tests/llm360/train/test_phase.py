from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import shutil
import signal

import pytest
import torch

import llm360.checkpoint as checkpoints
from llm360.data.order import chunk_order
from llm360.errors import DataError, IntegrityError, StorageFull, TrainingError
from llm360.files import manifest_sha256, read_manifest
from llm360.train import batches as batches_module
from llm360.train.ledger import Ledger, chunks_seen, passes
from llm360.train.pause import Paused
from llm360.train.phase import next_checkpoint
from llm360.train.schedule import Schedule

CHUNKS = 4


def test_killed_anywhere_and_run_again_it_ends_with_the_same_bytes(tmp_path, train, whole, in_child, content):
    draw, deaths = random.Random(11), 0
    for trial in range(6):
        root = tmp_path / str(trial)
        while not in_child(lambda root=root: train(root), draw.randint(0, 30)):
            deaths += 1
        train(root)
        assert content(root) == content(whole)
    assert deaths > 6


@pytest.mark.parametrize("lost", ["checkpoints/ckpt_001/model.safetensors", "metrics/chunk_002.jsonl", "ledger"])
def test_a_file_lost_in_the_middle_is_made_again(tmp_path, train, whole, content, lost):
    """DVC replaces files by links when it commits; a kill then can take one away."""
    shutil.copytree(whole, tmp_path / "run")
    (shutil.rmtree if (tmp_path / "run" / lost).is_dir() else os.remove)(tmp_path / "run" / lost)
    train(tmp_path / "run")
    assert content(tmp_path / "run") == content(whole)


def test_a_finished_phase_is_left_alone(whole, train):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    train(whole)
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


def test_crystal_resumes_exactly_too(tmp_path, initial, train, in_child, content):
    first = initial(tmp_path / "init", "crystal")
    train(tmp_path / "a", first=first)
    assert not in_child(lambda: train(tmp_path / "b", first=first), 25)
    train(tmp_path / "b", first=first)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_every_checkpoint_follows_from_the_one_before_it_alone(tmp_path, whole, start, chunks, params, alone):
    parent = start
    for ckpt in range(CHUNKS):
        child = whole / f"checkpoints/ckpt_{ckpt:03d}"
        fields = {k: read_manifest(child)[k] for k in ("fingerprint", "environment", "world")}
        out = tmp_path / str(ckpt)
        next_checkpoint(params, parent=parent, chunks=chunks, out=out, fields=fields, world=alone)
        assert manifest_sha256(out) == manifest_sha256(child)
        parent = child


def test_a_checkpoint_names_its_parent_and_its_chunk(whole, start, chunks):
    parent = start
    for i in range(CHUNKS):
        folder = whole / f"checkpoints/ckpt_{i:03d}"
        manifest = read_manifest(folder)
        assert manifest["parent"] == manifest_sha256(parent)
        assert manifest["chunk_files"][0]["sha256"] == chunks.entry(i).sha256
        assert manifest["step"] == 2 * (i + 1)
        assert manifest["tokens_seen"] == manifest["step"] * 3 * 16
        assert manifest["world"] == {"ranks": 1, "replicas": 1}
        parent = folder


def test_the_ledger_tells_what_was_seen_and_what_filled_no_step(whole, params):
    events = Ledger(whole / "ledger/ledger.jsonl").events()
    assert chunks_seen(events, ckpt=2) == [0, 1, 2]
    assert [e["rows_unused"] for e in events if e["event"] == "chunk_finished"] == [1] * CHUNKS
    assert events[0]["seed"] == params.seed
    assert [e["event"] for e in events[:4]] == ["phase_started", "chunk_started", "chunk_finished", "checkpoint_saved"]


def test_the_ledger_gives_the_rows_of_every_step(tmp_path, train, monkeypatch):
    read, rank_rows = [], batches_module.rank_rows

    def spied(*args):
        read.extend(rank_rows(*args))
        return rank_rows(*args)

    monkeypatch.setattr(batches_module, "rank_rows", spied)
    folders = train(tmp_path)
    found = []
    for p in passes(Ledger(folders.ledger / "ledger.jsonl").events()):
        order = chunk_order(seed=p.seed, phase=p.phase, chunk=p.chunk, rows=p.rows + p.rows_unused)
        found += [order[list(p.positions(step))] for step in range(p.first_step, p.last_step + 1)]
    assert [r.tolist() for r in found] == [r.tolist() for r in read]


def test_the_next_phase_counts_its_own_steps_and_keeps_the_moments(tmp_path, whole, train, make_chunks, chunk_params):
    after = dataclasses.replace(chunk_params, phase="second", first_chunk=CHUNKS, chunks=1)
    reader = make_chunks(tmp_path / "chunks", after)
    last = whole / f"checkpoints/ckpt_{CHUNKS - 1:03d}"
    folders = train(tmp_path / "run", first=last, reader=reader, phase="second")
    child = folders.checkpoints / f"ckpt_{CHUNKS:03d}"
    assert (read_manifest(child)["phase_step"], read_manifest(child)["step"]) == (2, 2 * CHUNKS + 2)
    assert checkpoints.steps_taken(child) == checkpoints.steps_taken(last) + 2


def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path, train, whole):
    train(tmp_path, micro_batch_size=3)
    a, b = (checkpoints.load_model(r / "checkpoints/ckpt_000") for r in (whole, tmp_path))
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_bf16_trains_fp32_weights_and_resumes_exactly(tmp_path, train, whole, in_child, content, params):
    compute = dataclasses.replace(params.compute, precision="bf16", activation_checkpointing=True)
    train(tmp_path / "a", compute=compute)
    assert not in_child(lambda: train(tmp_path / "b", compute=compute), 25)
    train(tmp_path / "b", compute=compute)
    assert content(tmp_path / "a") == content(tmp_path / "b") != content(whole)
    weights = checkpoints.load_model(tmp_path / "a/checkpoints/ckpt_003").state_dict()
    assert {t.dtype for t in weights.values()} == {torch.float32}


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tmp_path, train):
    with pytest.raises(
        TrainingError, match=r"chunk 1: loss nan, .*expected finite numbers; the last checkpoint is whole"
    ):
        train(tmp_path, planted_nan=(1,))
    assert (tmp_path / "checkpoints/ckpt_000/manifest.json").is_file()
    assert not (tmp_path / "checkpoints/ckpt_001").exists()


def test_a_batch_larger_than_a_chunk_is_refused(tmp_path, train):
    with pytest.raises(DataError, match="fewer rows than one batch"):
        train(tmp_path, batch_size=8)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_resuming_from_an_altered_checkpoint_is_refused(tmp_path, train, name):
    train(tmp_path)
    last = tmp_path / f"checkpoints/ckpt_{CHUNKS - 2:03d}"
    (tmp_path / f"checkpoints/ckpt_{CHUNKS - 1:03d}/manifest.json").unlink()
    data = bytearray((last / name).read_bytes())
    data[len(data) // 2] ^= 1
    (last / name).write_bytes(bytes(data))
    with pytest.raises((IntegrityError, ValueError), match=name):
        train(tmp_path)


def test_a_full_disk_in_mid_checkpoint_loses_nothing(tmp_path, train, whole, content, monkeypatch):
    def full(folder, name, tensors, write=checkpoints._write_tensors):
        if "ckpt_002" in str(folder) and name == checkpoints.OPTIMIZER:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        write(folder, name, tensors)

    with (
        monkeypatch.context() as m,
        pytest.raises(StorageFull, match=r"ckpt_002: no space left .* finished work is kept"),
    ):
        m.setattr(checkpoints, "_write_tensors", full)
        train(tmp_path)
    assert not list((tmp_path / "checkpoints").glob(".partial-*"))
    train(tmp_path)
    assert content(tmp_path) == content(whole)


class TestPause:
    @pytest.fixture(params=range(1, 8))
    def paused(self, request, tmp_path, train, monkeypatch):
        """A run that was asked to end during its n-th step."""
        steps = 0

        def signalled(*args, **kwargs):
            nonlocal steps
            steps += 1
            if steps == request.param:
                os.kill(os.getpid(), signal.SIGTERM)
            return rate(*args, **kwargs)

        rate = Schedule.learning_rate
        with monkeypatch.context() as m, pytest.raises(Paused, match=f"saved at step {request.param} and ended"):
            m.setattr(Schedule, "learning_rate", signalled)
            train(tmp_path)
        return request.param

    def test_it_goes_on_exactly_from_the_step_where_it_was_paused(self, tmp_path, paused, train, whole, content):
        folder = tmp_path / "work/paused"
        assert folder.exists() == bool(paused % 2)  # after an even step a chunk, and so a checkpoint, was finished
        if folder.exists():
            assert json.loads((folder / "state.json").read_text())["position"] == 1
        train(tmp_path)
        assert content(tmp_path) == content(whole)
        assert not folder.exists()
