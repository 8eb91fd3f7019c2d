"""Replay without a registry: params by dotted key, a report from its parts, a state in mid-chunk."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file

from llm360.checkpoint import TrainState
from llm360.code import TRAINING, code_sha256
from llm360.environment import environment, use_threads
from llm360.errors import ConfigError
from llm360.files import manifest_sha256, write_json
from llm360.replay.evidence import Link, altered, at, circumstances
from llm360.replay.replay import asked, recorded_fields, replay, settings_kept
from llm360.train.phase import next_checkpoint, run_phase
from llm360.train.record import RunFolders


@pytest.fixture(scope="module", autouse=True)
def as_in_a_run():
    with settings_kept():
        use_threads(1)
        yield


@pytest.fixture(scope="module")
def recipe(params, chunks, start):
    return {
        "params": json.loads(json.dumps(dataclasses.asdict(params))),
        "chunks": manifest_sha256(chunks.folder),
        "start": manifest_sha256(start),
        "code": code_sha256(*TRAINING),
        "environment": environment(),
    }


@pytest.fixture(scope="module")
def links(tmp_path_factory, params, chunks, start, recipe, alone):
    root = tmp_path_factory.mktemp("links")
    folders = RunFolders(*[root / name for name in ("checkpoints", "metrics", "ledger", "timings", "work")])
    run_phase(params, start=start, chunks=chunks, folders=folders, recipe=recipe, world=alone)
    common = {"suite": "tiny", "chunks": chunks.folder, "ledger": folders.ledger / "ledger.jsonl"}
    parents = [start, *[folders.checkpoint(i) for i in range(3)]]
    kept = folders.checkpoints / "fingerprint.json"
    return [
        Link(ckpt=i, folder=folders.checkpoint(i), parent=parent, kept=kept, **common)
        for i, parent in enumerate(parents)
    ]


def test_every_link_of_the_chain_is_made_again_and_the_scratch_is_gone(tmp_path, links, alone):
    for link in links:
        report = replay(link, changed={}, scratch=tmp_path / "scratch", world=alone)
        assert (str(report), report.steps) == (f"tiny/ckpt-{link.ckpt}: identical", 2)
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_beside_the_checkpoints_need_not_be_there(links, recipe):
    assert not links[0].kept.exists()
    assert links[0].recipe == recipe
    assert altered(links[0]) == []


def test_of_two_recipes_the_one_of_the_fingerprint_counts(tmp_path, links, recipe):
    kept = tmp_path / "fingerprint.json"
    write_json(kept, recipe | {"seed": 1})
    link = dataclasses.replace(links[0], kept=kept)
    assert link.recipe == recipe
    assert [(c.what, "fingerprint.json: seed: null -> 1 (" in c.detail) for c in altered(link)] == [("params", True)]


def test_a_manifest_without_its_fields_is_a_culprit_and_no_crash(tmp_path, links, alone):
    folder = tmp_path / "ckpt_001"
    write_json(folder / "manifest.json", {"suite": "tiny", "world": "large"})
    report = replay(dataclasses.replace(links[1], folder=folder), changed={}, scratch=tmp_path / "s", world=alone)
    assert {c.what for c in report.culprits} >= {"weights", "parent", "data", "params"}
    assert not report.identical


def test_circumstances_are_told_as_recorded_and_here(links):
    assert circumstances(links[0], ranks=1, changed={}) == []
    found = circumstances(links[0], ranks=2, changed={"optimizer.eps": 1e-9})
    assert [str(c) for c in found] == ["params: optimizer.eps: 1e-08 -> 1e-09", "environment: ranks: 1 -> 2"]


def test_params_are_changed_by_dotted_key(recipe, params):
    assert asked(recipe["params"], {}) == params
    changed = asked(recipe["params"], {"schedule.peak": 1, "planted_nan": [2], "branch": None})
    assert (changed.schedule.peak, changed.planted_nan) == (1.0, (2,))
    with pytest.raises(ConfigError, match=r"params: no 'optimizer.beta' to change; did you mean 'beta2' or 'beta1'"):
        asked(recipe["params"], {"optimizer.beta": 1.0})
    assert at({"a": {"b": 1}}, "a.b") == 1
    assert at({"a": 1}, "a.b.c") is None


@pytest.mark.parametrize("ckpt", range(4))
def test_a_state_in_mid_chunk_is_that_of_a_run_that_is_stopped(tmp_path, links, params, chunks, alone, ckpt):
    link = links[ckpt]
    common = {"parent": link.parent, "chunks": chunks, "fields": recorded_fields(link), "world": alone, "steps": 1}
    measured = next_checkpoint(params, out=tmp_path / "a", towards=TrainState.read(link.folder), **common)
    next_checkpoint(params, out=tmp_path / "b", **common)
    assert (tmp_path / "a/manifest.json").read_bytes() == (tmp_path / "b/manifest.json").read_bytes()
    assert len(measured) == 1
    assert TrainState.read(tmp_path / "a").position == 1
    before, after = (load_file(f / "model.safetensors") for f in (link.parent, tmp_path / "a"))
    assert not all(torch.equal(before[k], after[k]) for k in before)
