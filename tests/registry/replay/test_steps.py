"""The state at any step equals that of a run that was stopped there."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch

import registry
from llm360.checkpoint import TrainState
from llm360.data.chunks import ChunkReader
from llm360.data.order import chunk_order
from llm360.errors import IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import read_manifest, write_bytes
from llm360.replay.replay import asked
from llm360.train.distributed import World
from llm360.train.trainer import Trainer

SUITE, BRANCH = "toy-run", "toy-branch"
PASSES = [("one", 0), ("one", 2), ("one", 0), ("two", 3), ("two", 4)]  # chunk 1 fails, fails again: 0 is repeated
STEPS = 3  # of each pass
MIDDLE = [1, 2, 4, 5, 7, 8, 10, 11, 13, 14]


def straight(artifacts, stop):
    """Train the whole run anew without the library's passes and stop after a step; returns the trainer there."""
    alone, taken = World(0, 1, 1, torch.device("cpu"), None), 0
    torch.use_deterministic_algorithms(True)
    trainer = None
    for number, (phase, chunk) in enumerate(PASSES):
        recipe = json.loads((artifacts / f"checkpoints/{SUITE}/{phase}/fingerprint.json").read_text())
        params = dataclasses.replace(asked(recipe["params"], {}), planted_nan=())
        if trainer is None:
            trainer, _ = Trainer.restore(artifacts / f"init/{SUITE}", params, alone)
        reader = ChunkReader(artifacts / f"chunks/{SUITE}/{phase}")
        order = chunk_order(seed=params.seed, phase=phase, chunk=chunk, rows=10)
        for s in range(STEPS):
            if taken == stop:
                torch.use_deterministic_algorithms(False)
                return trainer
            rows = torch.from_numpy(reader.tokens(chunk)[order[3 * s : 3 * s + 3]].astype("int64"))
            one_step(trainer, rows, params, number * STEPS + s if phase == "one" else (number - 3) * STEPS + s)
            taken += 1
    return trainer


def one_step(trainer, rows, params, phase_step):
    from llm360.train.loop import train_steps

    (measured,) = train_steps(trainer, [rows], params, first_step=phase_step)
    assert measured.finite


@pytest.mark.parametrize("step", range(16))
def test_the_state_at_every_step_is_that_of_a_run_stopped_there(trained, step):
    found = registry.checkpoint(SUITE, step=step)
    assert found.step == step
    tensors = straight(trained, step).snapshot()
    model = registry.load(SUITE, step=step)
    weights = dict(model.named_parameters())
    assert weights.keys() == tensors.weights.keys()
    assert all(torch.equal(weights[name], tensors.weights[name]) for name in weights)
    moments = found.optimizer()
    assert moments.keys() == tensors.moments.keys()
    assert all(torch.equal(moments[name], tensors.moments[name]) for name in moments)
    assert found.tokens_seen == step * 3 * 16
    assert found.chunks_seen() == [chunk for _, chunk in PASSES[: -(-step // STEPS)]]
    assert found.metrics()["step"].to_list() == list(range(1, step + 1))


def test_a_saved_step_is_the_saved_checkpoint_and_others_are_kept_apart(trained):
    assert registry.checkpoint(SUITE, step=6).path == trained / f"checkpoints/{SUITE}/one/ckpt_001"
    assert registry.checkpoint(SUITE, step=0).path == trained / f"init/{SUITE}"
    found = registry.checkpoint(SUITE, step=5)
    assert found.path == trained / f"steps/{SUITE}/step_000005"
    assert (found.ckpt, found.phase, found.state().position) == (1, "one", 2)
    assert found.state().deferred[0].chunk == 1


def test_a_step_is_made_once_and_anew_when_it_is_altered_or_of_other_code(trained, monkeypatch, flip_bit):
    from llm360.replay import evidence
    from llm360.train import phase

    made = []
    make = phase.next_checkpoint
    monkeypatch.setattr(phase, "next_checkpoint", lambda *a, **k: made.append(k["steps"]) or make(*a, **k))
    for _ in range(2):
        registry.checkpoint(SUITE, step=5)
    assert made == [2]
    flip_bit(trained / f"steps/{SUITE}/step_000005/model.safetensors")
    registry.load(SUITE, step=5)
    assert made == [2, 2]
    monkeypatch.setattr(evidence, "code_sha256", lambda *_: "0" * 64)
    registry.checkpoint(SUITE, step=5)
    assert made == [2, 2, 2]
    assert read_manifest(trained / f"steps/{SUITE}/step_000005")["made_by"]["code"] == "0" * 64


def test_before_its_branch_a_suite_has_the_steps_of_the_other(trained):
    assert registry.checkpoint(BRANCH, step=0).path == trained / f"init/{SUITE}"
    assert registry.checkpoint(BRANCH, step=4).path == trained / f"steps/{SUITE}/step_000004"
    assert registry.checkpoint(BRANCH, step=6).path == trained / f"checkpoints/{SUITE}/one/ckpt_001"
    found = registry.checkpoint(BRANCH, step=7)
    assert (found.path, found.suite) == (trained / f"steps/{BRANCH}/step_000007", BRANCH)
    assert TrainState.read(found.path).phase_step == 1
    assert found.chunks_seen() == [0, 2, 2]


def change_metrics(trained, step, **changed):
    """Change a recorded number and its hash in the ledger, as only a liar would."""
    from llm360.files import sha256_bytes

    path, ledger = trained / f"metrics/{SUITE}/one/chunk_001.jsonl", trained / f"ledgers/{SUITE}/one/ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.update(changed if line["step"] == step else {})
    events = [json.loads(line) for line in ledger.read_text().splitlines()]
    write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
    for event in events:
        if event["event"] == "chunk_finished" and event["ckpt"] == 1:
            event["metrics_sha256"] = sha256_bytes(path.read_bytes())
    ledger.write_text("".join(json.dumps(e, sort_keys=True) + "\n" for e in events))


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_steps_that_measure_otherwise_than_recorded_are_refused(trained, name):
    change_metrics(trained, 5, **{name: 0.5})
    assert registry.checkpoint(SUITE, step=4).step == 4  # the steps before are as recorded
    message = rf"toy-run at step 5: {name} of step 5 was 0\.5 and is \S+ \(environment and code are the recorded ones\)"
    with pytest.raises(IntegrityError, match=message + r".*registry replay toy-run --ckpt 1.*exact=False"):
        registry.checkpoint(SUITE, step=5)
    found = registry.checkpoint(SUITE, step=5, exact=False)
    assert found.path == trained / f"steps/{SUITE}/step_000005-inexact"
    with pytest.raises(IntegrityError, match="at step 5"):
        registry.load(SUITE, step=5)


def test_the_environment_is_named_when_it_is_another(trained, monkeypatch):
    from llm360.replay import evidence
    from llm360.train import trainer

    here = evidence.environment
    monkeypatch.setattr(evidence, "environment", lambda: here() | {"torch": "9.9"})
    assert registry.checkpoint(SUITE, step=1).step == 1  # another one that makes no difference
    monkeypatch.setattr(trainer.Trainer, "clip_gradients", lambda self, max_norm: 2 * self.grad_norm())
    with pytest.raises(
        IntegrityError, match=r'at step 5: grad_norm of step 4 was .* \(environment: torch: "2.*" -> "9\.9"\)'
    ):
        registry.checkpoint(SUITE, step=5)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            f"checkpoints/{SUITE}/one/ckpt_000/optimizer.safetensors",
            r"no step towards it .*parent: .*ckpt_000/optimizer",
        ),
        (f"chunks/{SUITE}/one/tokens.zarr/c/2/0", r"no step towards it can be taken again; data: .*tokens.zarr/c/2/0"),
        (f"metrics/{SUITE}/one/chunk_001.jsonl", r"chunk_001\.jsonl: sha256"),
    ],
)
def test_nothing_is_made_from_altered_evidence(trained, flip_bit, path, message):
    flip_bit(trained / path)
    with pytest.raises(IntegrityError, match=message):
        registry.checkpoint(SUITE, step=5)
    assert not (trained / f"steps/{SUITE}").exists()


@pytest.mark.parametrize("step", [-1, True, 1.5, "5"])
def test_what_is_no_step_is_refused(trained, step):
    with pytest.raises(InvalidId, match="expected a whole number from 0"):
        registry.load(SUITE, step=step)


def test_steps_outside_the_run_and_of_other_suites(trained):
    with pytest.raises(NotFound, match="toy-run has no step 16: its run goes to step 15"):
        registry.load(SUITE, step=16)
    with pytest.raises(InvalidId, match=r"read ckpt=1, step=2, expected one of them; for example step=2"):
        registry.load(SUITE, ckpt=1, step=2)
    with pytest.raises(NotReleased, match="amber: the order of rows"):
        registry.load("amber", step=2)
    shutil.rmtree(trained / f"init/{SUITE}")
    with pytest.raises(StoreUnavailable, match=r"toy-run at step 0: no artifacts/init/toy-run here; `dvc pull art"):
        registry.load(SUITE, step=0)
    with pytest.raises(StoreUnavailable, match=r"ckpt-0 cannot be replayed: artifacts/init/toy-run is not in this"):
        registry.load(SUITE, step=1)
