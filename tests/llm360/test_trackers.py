from __future__ import annotations

import json
import math
import os
import random
import sys
import types

import numpy as np
import polars as pl
import pytest
import torch

from llm360 import trackers
from llm360.errors import ConfigError
from llm360.trackers import open_trackers

CONFIG = {"params": {"seed": 3, "branch": None, "chunks": [1, 2]}}


def numbers(step):
    return {"loss": 5.0 / step, "grad_norm": 1.0}


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_NO_ANALYTICS", "DVC_STUDIO_OFFLINE", "TRACKIO_DIR"):
        monkeypatch.setenv(name, "1")  # so that what a tracker sets is undone
        monkeypatch.delenv(name)

    def opened(*names):
        return open_trackers(names, folder=tmp_path / "timings", run="tiny/phase1", config=CONFIG)

    return opened


@pytest.fixture
def told(monkeypatch):
    """The steps that a tracker of its own kind, "deaf", was told."""
    found = []

    class Deaf:
        def __init__(self, folder, run, config):
            found.append((folder.name, run))

        def log(self, step, numbers):
            if step == 3:
                raise OSError("connection lost")
            found.append((step, numbers))

        def close(self):
            found.append("closed")

    monkeypatch.setitem(trackers.TRACKERS, "deaf", Deaf)
    return found


def curve(folder, name):
    return pl.read_csv(folder / f"timings/dvclive/plots/metrics/{name}.tsv", separator="\t").rows()


def test_an_unknown_name_is_refused(opened):
    with pytest.raises(ConfigError, match="trackers: unknown name 'dvc-live'; did you mean 'dvclive'"):
        opened("dvc-live")


def test_dvclive_has_each_step_once_though_a_killed_run_takes_some_again(tmp_path, opened):
    (first,) = opened("dvclive")
    for step in (1, 2, 3):
        first.log(step, numbers(step))
    torn = tmp_path / "timings/dvclive/plots/metrics/grad_norm.tsv"  # as a kill leaves it
    torn.write_bytes(torn.read_bytes()[:-4])
    (second,) = opened("dvclive")
    for step in (2, 3, 4):
        second.log(step, numbers(step))
    second.close()
    assert curve(tmp_path, "loss") == [(step, 5.0 / step) for step in (1, 2, 3, 4)]
    assert curve(tmp_path, "grad_norm") == [(step, 1.0) for step in (1, 2, 3, 4)]
    summary = json.loads((tmp_path / "timings/dvclive/metrics.json").read_text())
    assert summary == numbers(4) | {"step": 4}


def test_files_that_a_cache_links_to_are_copied_before_they_are_written(tmp_path, opened):
    (tracker,) = opened("dvclive")
    tracker.log(1, numbers(1))
    tracker.close()
    files = [p for p in (tmp_path / "timings").rglob("*") if p.is_file()]
    cache = {path: tmp_path / f"cache-{i}" for i, path in enumerate(files)}
    for path, cached in cache.items():
        cached.hardlink_to(path)
    before = [cached.read_bytes() for cached in cache.values()]
    (tracker,) = opened("dvclive")
    tracker.log(2, numbers(2))
    tracker.close()
    assert [cached.read_bytes() for cached in cache.values()] == before
    assert len(curve(tmp_path, "loss")) == 2


def test_dvclive_writes_only_below_its_folder_and_draws_no_random_number(tmp_path, opened, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))  # as inside `dvc repro`
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1]
    (tracker,) = opened("dvclive")
    tracker.log(1, numbers(1))
    tracker.close()
    after = random.getstate(), torch.get_rng_state(), np.random.get_state()[1]
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])
    assert (before[2] == after[2]).all()
    assert [p.name for p in tmp_path.iterdir()] == ["timings"]
    assert "branch" not in (tmp_path / "timings/dvclive/params.yaml").read_text()


def test_what_is_no_number_is_left_out(opened, told):
    (tracker,) = opened("deaf")
    tracker.log(1, {"loss": math.nan, "grad_norm": math.inf, "noise_scale": None, "mfu": 0.4})
    assert told == [("deaf", "tiny/phase1"), (1, {"mfu": 0.4})]


def test_a_tracker_that_fails_is_said_once_and_ends_alone(tmp_path, opened, told, capsys):
    broken, sound = opened("deaf", "dvclive")
    for step in range(1, 6):
        broken.log(step, numbers(step))
        sound.log(step, numbers(step))
    broken.close()
    sound.close()
    assert capsys.readouterr().err.count("tracker deaf: connection lost; the run goes on without it") == 1
    assert [step for step, _ in told[1:]] == [1, 2]
    assert len(curve(tmp_path, "loss")) == 5


def test_one_that_is_not_installed_says_what_to_install(opened, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trackio", None)  # import fails
    assert opened("trackio") == []
    assert "tracker trackio: not installed: pip install trackio; the run goes on" in capsys.readouterr().err


class Fake(types.ModuleType):
    """A package with the calls of wandb and trackio that we make; it notes them, and talks as trackio does."""

    def __init__(self, name, *, configured=True):
        super().__init__(name)
        self.calls, self.configured = [], configured
        self.Settings = dict

    def login(self, prompt):
        return self.configured

    def init(self, **given):
        sys.stdout.write("initialized")
        self.calls.append(given)
        return self

    def log(self, numbers, step):
        self.calls.append((step, numbers))

    def finish(self):
        self.calls.append("finished")


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_service_goes_on_with_the_same_run_and_keeps_stdout_for_data(name, opened, monkeypatch, capsys):
    fake = Fake(name)
    monkeypatch.setitem(sys.modules, name, fake)
    (tracker,) = opened(name)
    tracker.log(4, numbers(4))
    tracker.close()
    began, *rest = fake.calls
    known = {"project": "llm360", "name": "tiny/phase1", "resume": "allow", "config": CONFIG}
    assert began | known == began
    assert rest == [(4, numbers(4)), "finished"]
    assert capsys.readouterr().out == ""


def test_wandb_is_opened_only_when_configured(opened, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", Fake("wandb", configured=False))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert opened("wandb") == []
    assert "tracker wandb: not configured: run `wandb login`" in capsys.readouterr().err
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert len(opened("wandb")) == 1


def test_trackio_writes_into_the_folder(tmp_path, opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", Fake("trackio"))
    opened("trackio")
    assert os.environ["TRACKIO_DIR"] == str(tmp_path / "timings/trackio")
