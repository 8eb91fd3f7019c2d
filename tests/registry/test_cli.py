from __future__ import annotations

import json
import re

import pytest

from registry import ArtifactId, suite
from registry.pull import targets


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


def test_an_altered_log_is_not_called_whole_and_one_without_ledger_is_not_called_checked(workspace, run):
    log = workspace.artifacts / "metrics/toy-smoke/phase1/chunk_001.jsonl"
    ledger = workspace.artifacts / "ledgers/toy-smoke/phase1/ledger.jsonl"
    assert "already here and whole" in run("pull", "toy-smoke/log-1")[2]
    log.write_text(log.read_text().replace("3.0", "2.0"))
    code, _, err = run("pull", "toy-smoke/log-1")
    assert (code, "whole" in err) == (1, False)
    ledger.unlink()
    code, _, err = run("pull", "toy-smoke/log-1")
    assert (code, "whole" in err) == (0, False)
    assert "NOT checked: no ledger" in err


def test_pull_asks_for_exactly_what_is_needed(workspace):
    def wanted(text):
        return targets(workspace, suite("toy-smoke"), ArtifactId.parse(text))

    assert wanted("toy-smoke/ckpt-2") == ["artifacts/checkpoints/toy-smoke/phase2/ckpt_002"]
    assert wanted("toy-smoke/log-1") == ["artifacts/metrics/toy-smoke/phase1/chunk_001.jsonl"]
    ledger = workspace.artifacts / "ledgers/toy-smoke/phase1/ledger.jsonl"
    ledger.unlink()  # one that is here is left alone, for a run may be appending to it
    assert wanted("toy-smoke/log-1")[1:] == ["artifacts/ledgers/toy-smoke/phase1/ledger.jsonl"]
    folder = "artifacts/chunks/toy-smoke/phase2"
    assert wanted("toy-smoke/chunk-2") == [
        f"{folder}/tokens.zarr/c/0/0", f"{folder}/tokens.zarr/zarr.json", f"{folder}/provenance/chunk_002.parquet",
        f"{folder}/manifest.json",
    ]  # fmt: skip
