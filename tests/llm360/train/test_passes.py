"""Chunks and steps that are not finite, in the real loop, by planted faults."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import llm360.checkpoint as checkpoints
from llm360.checkpoint import TrainState
from llm360.errors import TrainingError
from llm360.files import manifest_sha256, read_manifest
from llm360.train.ledger import Ledger, chunks_seen, passes
from llm360.train.phase import next_checkpoint

CHUNKS = 4


def told(folders, *kinds):
    return [(e["event"], e["chunk"]) for e in Ledger(folders.ledger / "ledger.jsonl").events() if e["event"] in kinds]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("deferred")


@pytest.fixture(scope="module")
def deferred(root, train):
    """Chunks 1 and 2 are never finite: the paper's story in small."""
    return train(root, on_nonfinite="defer", planted_nan=(1, 2))


def test_bad_chunks_are_deferred_fail_again_and_the_first_ones_are_repeated(deferred):
    order = [(0, "first"), (3, "first"), (0, "repeat"), (3, "repeat")]
    found = passes(Ledger(deferred.ledger / "ledger.jsonl").events())
    assert [(p.chunk, p.turn) for p in found] == order
    assert [(p.ckpt, p.number) for p in found] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert told(deferred, "chunk_deferred") == [("chunk_deferred", 1), ("chunk_deferred", 2)]
    assert told(deferred, "chunk_skipped") == [("chunk_skipped", 1), ("chunk_skipped", 2)]
    assert [TrainState.read(deferred.checkpoint(i)).chunk for i in range(CHUNKS)] == [0, 3, 0, 3]


def test_chunks_seen_answers_truly(deferred):
    events = Ledger(deferred.ledger / "ledger.jsonl").events()
    assert chunks_seen(events, ckpt=3) == [0, 3, 0, 3]


def test_the_schedule_is_completed(deferred):
    last = read_manifest(deferred.checkpoint(CHUNKS - 1))
    assert (last["step"], last["phase_step"], last["chunks_seen"]) == (8, 8, 4)
    rates = [json.loads(line)["learning_rate"] for i in range(CHUNKS) for line in deferred.log(i).open()]
    assert len(rates) == 8
    assert rates[2:] == sorted(rates[2:], reverse=True)


def test_nothing_of_a_failed_turn_is_in_the_weights(root, deferred, train, chunks, params, alone, start):
    """Checkpoint 1 is what chunk 3 makes of checkpoint 0, as if chunks 1 and 2 had never been tried."""
    straight = train(root / "straight", planted_nan=())
    assert manifest_sha256(deferred.checkpoint(0)) == manifest_sha256(straight.checkpoint(0))
    weights = [dict(checkpoints.tensors_of(f, checkpoints.WEIGHTS, names(f))) for f in both(deferred, straight)]
    assert any(not torch.equal(weights[0][n], weights[1][n]) for n in weights[0])


def both(*folders):
    return [f.checkpoint(1) for f in folders]


def names(folder):
    return dict(checkpoints.load_model(folder).named_parameters())


def test_it_stays_replayable(tmp_path, deferred, start, chunks, params, alone):
    params = dataclasses.replace(params, on_nonfinite="defer", planted_nan=(1, 2))
    parent = start
    for ckpt in range(CHUNKS):
        child = deferred.checkpoint(ckpt)
        fields = {k: read_manifest(child)[k] for k in ("fingerprint", "environment", "world")}
        next_checkpoint(params, parent=parent, chunks=chunks, out=tmp_path / "out", fields=fields, world=alone)
        assert manifest_sha256(tmp_path / "out") == manifest_sha256(child)
        parent = child


def test_killed_anywhere_it_tells_the_same_story(root, tmp_path, deferred, train, in_child, content):
    given = {"on_nonfinite": "defer", "planted_nan": (1, 2)}
    for dies_at in range(3, 60, 9):
        in_child(lambda: train(tmp_path, **given), dies_at)
    train(tmp_path, **given)
    story = [e for e in content(root) if not e.path.startswith("straight/")]
    assert content(tmp_path) == story


def test_a_ledger_that_was_lost_is_told_again_from_the_checkpoints(root, deferred, train):
    before = (deferred.ledger / "ledger.jsonl").read_bytes()
    (deferred.ledger / "ledger.jsonl").unlink()
    train(root, on_nonfinite="defer", planted_nan=(1, 2))
    assert (deferred.ledger / "ledger.jsonl").read_bytes() == before


def test_skipped_steps_leave_the_weights_and_are_told(tmp_path, train, chunks, params, start, alone):
    folders = train(tmp_path, on_nonfinite="skip_steps", planted_nan=(0, 3))
    events = Ledger(folders.ledger / "ledger.jsonl").events()
    assert [e["step"] for e in events if e["event"] == "step_skipped"] == [2, 8]
    assert [p.skipped_steps for p in passes(events)] == [(2,), (), (), (8,)]
    lines = [json.loads(line) for line in folders.log(0).open()]
    assert [line["loss"] is None for line in lines] == [False, True]
    assert checkpoints.steps_taken(folders.checkpoint(3)) == 6
    assert read_manifest(folders.checkpoint(3))["step"] == 8


def test_a_phase_of_nothing_but_bad_chunks_ends(tmp_path, train):
    with pytest.raises(TrainingError, match="no chunk of 0 to 3 gives a finite loss"):
        train(tmp_path, on_nonfinite="defer", planted_nan=(0, 1, 2, 3))
