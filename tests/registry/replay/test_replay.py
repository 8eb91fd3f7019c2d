"""Replay of a run that was really trained, and what it says of every kind of altered evidence."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest
import torch

import registry
from llm360.environment import environment
from llm360.errors import ConfigError, IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import write_json

SUITE, BRANCH = "toy-run", "toy-branch"


def whats(report):
    return [c.what for c in report.culprits]


def flip(path, at=0.5):
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("suite", "ckpt"),
    [(SUITE, 0), (SUITE, 1), (SUITE, 2), (SUITE, 3), (SUITE, "final"), (BRANCH, 2)],
    ids=["first", "after a deferred chunk", "retried, failed, repeated", "next phase", "final", "branch"],
)
def test_a_checkpoint_is_made_again_byte_for_byte(trained, suite, ckpt):
    before = sorted(p for p in trained.rglob("*"))
    report = registry.replay(suite, ckpt=ckpt)
    assert (report.identical, report.culprits, report.files, report.notes, report.steps) == (True, (), (), (), 3)
    assert [p for p in trained.rglob("*") if p not in before and p.name != "replays"] == []


def test_settings_of_the_caller_come_back(trained):
    torch.manual_seed(4)
    expected, before = torch.rand(2), environment()
    torch.manual_seed(4)
    registry.replay(SUITE, ckpt=0)
    assert torch.equal(torch.rand(2), expected)
    assert environment() == before
    assert not before["deterministic"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_flipped_bit_of_a_checkpoint_names_file_and_tensor(trained, name):
    flip(trained / f"checkpoints/{SUITE}/one/ckpt_001/{name}", at=0.9)
    report = registry.replay(SUITE, ckpt=1)
    assert (report.identical, whats(report)) == (False, ["weights", "weights"])
    assert f"ckpt_001/{name}: sha256" in report.culprits[0].detail
    (file,) = report.files
    (tensor,) = file.tensors
    assert (file.path, tensor.differing) == (name, 1)
    assert tensor.name in report.culprits[1].detail


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (f"checkpoints/{SUITE}/one/ckpt_001/state.json", "weights"),
        (f"checkpoints/{SUITE}/one/ckpt_001/config.json", "weights"),
        (f"checkpoints/{SUITE}/one/ckpt_001/tokenizer.json", "weights"),
        (f"checkpoints/{SUITE}/one/ckpt_001/manifest.json", "weights"),
        (f"checkpoints/{SUITE}/one/ckpt_000/model.safetensors", "parent"),
        (f"checkpoints/{SUITE}/one/ckpt_000/optimizer.safetensors", "parent"),
        (f"checkpoints/{SUITE}/one/ckpt_000/state.json", "parent"),
        (f"checkpoints/{SUITE}/one/ckpt_000/manifest.json", "parent"),
        (f"chunks/{SUITE}/one/tokens.zarr/c/2/0", "data"),
        (f"chunks/{SUITE}/one/manifest.json", "data"),
        (f"checkpoints/{SUITE}/one/fingerprint.json", "params"),
    ],
)
@pytest.mark.parametrize("at", [0.02, 0.5, 0.83])
def test_a_flipped_bit_of_any_file_names_it(trained, path, what, at):
    flip(trained / path, at)
    report = registry.replay(SUITE, ckpt=1)
    assert not report.identical
    assert any(c.what == what and path.split("/", 3)[-1] in c.detail for c in report.culprits), report.culprits


def test_nothing_is_trained_on_altered_data_or_from_an_altered_parent(trained):
    flip(trained / f"init/{SUITE}/model.safetensors")
    flip(trained / f"chunks/{SUITE}/one/tokens.zarr/c/0/0")
    report = registry.replay(SUITE, ckpt=0)
    assert (whats(report), report.steps, report.files) == (["parent", "data"], 0, ())


def change_ledger(trained, **changed):
    path = trained / f"ledgers/{SUITE}/one/ledger.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    events[0]["recipe"]["params"] |= changed
    path.write_text("".join(json.dumps(e, sort_keys=True) + "\n" for e in events))
    return events[0]["recipe"]


def test_a_param_changed_in_the_ledger_is_named_with_both_values(trained):
    change_ledger(trained, batch_size=2)
    report = registry.replay(SUITE, ckpt=0)
    assert (whats(report), report.files, report.steps) == (["params"], (), 3)  # fingerprint.json still has the true one
    assert "ledger.jsonl: params.batch_size: 3 -> 2 (fingerprint " in report.culprits[0].detail


def test_a_param_changed_everywhere_is_told_by_the_fingerprint_and_the_size(trained):
    write_json(trained / f"checkpoints/{SUITE}/one/fingerprint.json", change_ledger(trained, seed=4))
    report = registry.replay(SUITE, ckpt=0)
    assert whats(report) == ["params", "params"]
    assert "the recipe (fingerprint " in report.culprits[0].detail
    assert {"model.safetensors", "optimizer.safetensors"} <= {f.path for f in report.files}


def test_what_if_names_the_param_and_says_how_much_it_does(trained):
    report = registry.replay(SUITE, ckpt=1, params={"schedule.peak": 2e-2})
    assert (report.identical, [str(c) for c in report.culprits]) == (False, ["params: schedule.peak: 0.01 -> 0.02"])
    weights = next(f for f in report.files if f.path == "model.safetensors")
    assert len(weights.tensors) > 3
    assert all(0 < t.max_abs < 0.1 and t.max_ulps > 0 for t in weights.tensors)


def test_a_param_that_makes_no_difference_is_a_note(trained):
    report = registry.replay(SUITE, ckpt=1, params={"schedule.end": 1e-3})
    assert (report.identical, report.notes) == (
        True, ("params: schedule.end: 0.001 -> 0.001, which made no difference",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"schedule.peek": 1.0}, "no 'schedule.peek' to change; did you mean 'peak'"),
        ({"batch_size.rows": 1}, "no 'batch_size.rows' to change"),
        ({"batch_size": "many"}, "read 'many' .*expected int"),
    ],
)
def test_what_if_of_a_param_that_there_is_not(trained, params, message):
    with pytest.raises(ConfigError, match=message):
        registry.replay(SUITE, ckpt=1, params=params)


@pytest.fixture
def elsewhere(monkeypatch):
    """Another torch, as far as the environment says."""
    from llm360.replay import evidence

    here = evidence.environment
    monkeypatch.setattr(evidence, "environment", lambda: here() | {"torch": "9.9"})


def test_another_environment_that_makes_no_difference_is_a_note(trained, elsewhere):
    report = registry.replay(SUITE, ckpt=1)
    assert report.identical
    assert report.notes == (f'environment: torch: "{torch.__version__}" -> "9.9", which made no difference',)


def test_another_environment_or_code_that_makes_one_is_the_culprit(trained, elsewhere, monkeypatch):
    from llm360.replay import evidence
    from llm360.train import trainer

    monkeypatch.setattr(evidence, "code_sha256", lambda *_: "0" * 64)
    monkeypatch.setattr(trainer.Trainer, "clip_gradients", lambda self, max_norm: self.grad_norm())
    report = registry.replay(SUITE, ckpt=1)
    assert whats(report) == ["environment", "code"]
    assert f"-> {'0' * 64} of llm360/checkpoint.py, " in report.culprits[1].detail


def test_a_checkpoint_that_does_not_follow_from_its_parent_is_the_culprit_itself(trained, monkeypatch):
    """Everything agrees with everything, and yet the bytes are others: somebody did not tell the truth."""
    from llm360.train import trainer

    monkeypatch.setattr(trainer.Trainer, "clip_gradients", lambda self, max_norm: self.grad_norm())
    report = registry.replay(SUITE, ckpt=1)
    assert whats(report) == ["weights"]
    assert report.culprits[0].detail.startswith("it does not follow from its parent ckpt_000: ")
    assert "model.safetensors: model." in report.culprits[0].detail
    assert str(report).startswith("toy-run/ckpt-1: differs; weights: it does not follow")


def test_what_cannot_be_replayed_says_why(trained):
    with pytest.raises(NotFound, match="toy-run/ckpt-5: not in this suite"):
        registry.replay(SUITE, ckpt=5)
    with pytest.raises(NotReleased, match="order"):
        registry.replay("amber", ckpt=5)
    (trained / f"checkpoints/{SUITE}/one/ckpt_001/manifest.json").unlink()
    for ckpt in (1, 2):
        with pytest.raises(
            StoreUnavailable, match=rf"ckpt-{ckpt} cannot be replayed: .*/ckpt_001 is not in this .*dvc"
        ):
            registry.replay(SUITE, ckpt=ckpt)
    flip(trained / f"ledgers/{SUITE}/one/ledger.jsonl", at=0)
    with pytest.raises(IntegrityError, match=r"ledger\.jsonl: a line is not JSON"):
        registry.replay(SUITE, ckpt=0)


def verdicts(trained, suite=SUITE):
    return [json.loads(line) for line in (trained / f"replays/{suite}.jsonl").read_text().splitlines()]


def test_an_audit_goes_on_where_it_was_killed(trained):
    audit = registry.replay_all(SUITE)
    assert [next(audit).steps for _ in range(2)] == [3, 3]
    audit.close()
    with open(trained / f"replays/{SUITE}.jsonl", "a") as handle:
        handle.write('{"ckpt": 2, "identi')
    reports = list(registry.replay_all(SUITE))
    assert [(r.ckpt, r.identical, r.steps) for r in reports] == [(i, True, 0 if i < 2 else 3) for i in range(5)]
    assert [v["ckpt"] for v in verdicts(trained)] == [0, 1, 2, 3, 4]
    assert all(r.notes == ("identical when it was replayed before",) for r in registry.replay_all(SUITE))


def test_what_was_altered_after_an_audit_is_found_all_the_same(trained):
    list(registry.replay_all(SUITE))
    path = trained / f"checkpoints/{SUITE}/two/ckpt_003/optimizer.safetensors"
    flip(path)
    found = {r.ckpt: whats(r) for r in registry.replay_all(SUITE)}
    assert found == {0: [], 1: [], 2: [], 3: ["weights", "weights"], 4: ["parent"]}
    assert verdicts(trained)[-1]["culprits"][0]["detail"].startswith("artifacts/checkpoints/toy-run/two/ckpt_003/")
    flip(path)
    assert [(r.identical, r.steps) for r in registry.replay_all(SUITE)][3:] == [(True, 0)] * 2


def test_another_environment_is_audited_anew(trained, elsewhere, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(trained.parent)
    assert [r.steps for r in registry.replay_all(BRANCH)] == [3]
    from llm360.replay import evidence

    here = evidence.environment
    monkeypatch.setattr(evidence, "environment", lambda: here() | {"torch": "9.9"})
    assert [r.steps for r in registry.replay_all(BRANCH)] == [3]
    assert [v["environment"]["torch"] for v in verdicts(trained, BRANCH)] == [torch.__version__, "9.9"]


def test_the_command_prints_a_verdict_and_its_exit_code_is_one(trained, run):
    code, out, _ = run("replay", SUITE, "--ckpt", "1")
    assert code == 0
    assert out.startswith("toy-run/ckpt-1: identical (3 steps, ")
    code, out, _ = run("replay", SUITE, "--ckpt", "1", "--set", "schedule.peak=2e-2")
    lines = out.splitlines()
    assert (code, lines[1]) == (1, "  params: schedule.peak: 0.01 -> 0.02")
    assert any("elements by ulps apart: " in line for line in lines)
    code, out, _ = run("replay", SUITE, "--ckpt", "final", "--json")
    assert (code, json.loads(out)["identical"]) == (0, True)


def test_the_command_audits_all_suites_and_names_the_first_culprit(trained, run):
    code, out, err = run("replay", "--all")
    assert (code, out) == (0, "6 identical, 0 differ\n")
    assert "6 of 6 were trained again, in " in err
    flip(trained / f"chunks/{SUITE}/one/tokens.zarr/c/0/0")
    code, out, err = run("replay", SUITE, "--all")
    first, *_, last = out.splitlines()
    assert code == 1
    assert first.startswith("toy-run/ckpt-0: differs (0 steps, ")
    assert last.startswith("3 identical, 2 differ, first: toy-run/ckpt-0: differs; data: ")
    code, out, _ = run("replay", BRANCH, "--all", "--json")
    assert (code, json.loads(out)["identical"]) == (0, 1)


def test_a_suite_that_is_not_here_to_its_end_is_not_proven(trained, run):
    shutil.rmtree(trained / f"checkpoints/{SUITE}/two/ckpt_004")
    code, out, err = run("replay", "--all")
    assert (code, out) == (1, "5 identical, 0 differ; not to the end: toy-run\n")
    assert "ckpt-4 cannot be replayed: artifacts/checkpoints/toy-run/two/ckpt_004 is not in this workspace" in err


@pytest.mark.parametrize(
    ("words", "read"), [("", "nothing"), (SUITE, "SUITE"), ("--all --ckpt 1", "--ckpt --all"), ("--ckpt 1", "--ckpt")]
)
def test_exactly_one_question_is_asked(trained, run, words, read):
    code, _, err = run("replay", *words.split())
    assert (code, err) == (
        1, f"error: InvalidId: read {read}, expected SUITE --ckpt K, SUITE --all, or --all; for example registry "
        "replay amber-mini --ckpt 17\n",
    )  # fmt: skip


def test_a_value_without_a_key_is_refused(trained, run):
    assert "--set: read '3', expected KEY=VALUE" in run("replay", SUITE, "--ckpt", "1", "--set", "3")[2]


def test_a_run_of_more_ranks_is_replayed_by_as_many(trained, monkeypatch):
    """Only the call: that torchrun's ranks train alike is tested where they are started."""
    from llm360 import launch
    from registry import ranks

    asked = {}

    def fake(module, argv, *, ranks):
        asked.update(module=module, ranks=ranks, call=json.loads((launch.Path(argv[0]) / "call.json").read_text()))
        return 3

    monkeypatch.setattr(launch, "launch", fake)
    monkeypatch.setattr("llm360.replay.evidence.Link.world", {"ranks": 2, "replicas": 1})
    with pytest.raises(registry.LLM360Error, match=r"toy-run/ckpt-1: the 2 ranks that it needs ended with exit code 3"):
        registry.replay(SUITE, ckpt=1)
    assert (asked["module"], asked["ranks"]) == ("registry.ranks", 2)
    assert asked["call"]["arguments"] == {"suite": SUITE, "ckpt": 1, "params": {}}
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match="was made by 2 ranks and this run has 1"):
        registry.replay(SUITE, ckpt=1)
    assert ranks.CALL == "call.json"


def test_replays_are_light_to_import():
    code = "import sys, registry, registry.cli; print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_is_plain_values(trained):
    report = registry.replay(SUITE, ckpt=1, params={"seed": 9})
    assert json.loads(json.dumps(dataclasses.asdict(report)))["files"][0]["path"]


def test_ids_that_are_none(trained):
    with pytest.raises(InvalidId, match="read ckpt 'last'"):
        registry.replay(SUITE, ckpt="last")
