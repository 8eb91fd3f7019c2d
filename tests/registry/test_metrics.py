from __future__ import annotations

import json

import polars as pl
import pytest

import registry
from llm360.errors import IntegrityError
from llm360.files import sha256_bytes, write_bytes
from llm360.train.ledger import Ledger
from registry import catalog
from registry.metrics import read_metrics

SUITE = "toy-smoke"
READ = [3, 0, 3]  # the chunks of the three passes: 0 was deferred and read second, 3 repeated


def a_line(ckpt, step, **changed):
    known = {"suite": SUITE, "phase": "phase1", "chunk": READ[ckpt], "step": step, "phase_step": step}
    return known | {"tokens_seen": 16 * step, "loss": 3.0, "grad_norm": 1.0, "learning_rate": 1e-3} | changed


def rewrite(workspace, kind, ckpt, lines):
    phase = "phase1" if ckpt < 2 else "phase2"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_bytes(workspace.artifacts / kind / SUITE / phase / f"chunk_{ckpt:03d}.jsonl", text.encode())
    return sha256_bytes(text.encode())


@pytest.fixture
def irregular(workspace):
    """Its first log is as before there was a noise scale, its second has a step that was skipped."""
    logs = [
        [a_line(0, 1), a_line(0, 2)],
        [a_line(1, 3, loss=None, grad_norm=None, noise_scale=None), a_line(1, 4, noise_scale=None)],
        [a_line(2, 5, noise_scale=7.5), a_line(2, 6, noise_scale=None)],
    ]
    for phase in ("phase1", "phase2"):
        (workspace.artifacts / "ledgers" / SUITE / phase / "ledger.jsonl").unlink()
    for ckpt, lines in enumerate(logs):
        ledger = Ledger(workspace.artifacts / "ledgers" / SUITE / f"phase{1 + ckpt // 2}" / "ledger.jsonl")
        sha256 = rewrite(workspace, "metrics", ckpt, lines)
        ledger.record({"event": "chunk_finished", "chunk": READ[ckpt], "ckpt": ckpt, "metrics_sha256": sha256})
    return workspace


def read(**given):
    return read_metrics(catalog.find(SUITE), **{"ckpt": None} | given)


def test_a_row_names_the_chunk_that_was_read_and_the_checkpoint_that_it_led_to(irregular, capsys):
    log = read()
    assert log["chunk"].to_list() == [3, 3, 0, 0, 3, 3]
    assert log["ckpt"].to_list() == [0, 0, 1, 1, 2, 2]
    assert log["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert read(ckpt=1)["step"].to_list() == [1, 2, 3, 4]
    assert "NOT checked" not in capsys.readouterr().err


def test_null_is_no_number_and_a_column_that_came_later_is_null_before(irregular):
    log = read()
    assert log["loss"].to_list() == [3.0, 3.0, None, 3.0, 3.0, 3.0]
    assert log["noise_scale"].to_list() == [None, None, None, None, 7.5, None]
    assert {log.schema[name] for name in ("loss", "grad_norm", "learning_rate", "noise_scale")} == {pl.Float64}


def test_a_log_without_any_noise_scale_has_a_column_of_numbers_all_the_same(irregular):
    assert read(ckpt=1).schema["noise_scale"] == pl.Float64


def test_an_old_log_is_read_without_the_column(workspace):
    log = registry.load_metrics(SUITE)
    assert "noise_scale" not in log.columns
    assert log["ckpt"].to_list() == log["chunk"].to_list()


def test_the_log_of_a_repeated_chunk_is_checked_by_its_own_hash(irregular):
    first = irregular.artifacts / "metrics" / SUITE / "phase1" / "chunk_000.jsonl"
    third = irregular.artifacts / "metrics" / SUITE / "phase2" / "chunk_002.jsonl"
    first.write_bytes(third.read_bytes())  # the same chunk, another pass
    with pytest.raises(IntegrityError, match=r"chunk_000\.jsonl"):
        read()


def test_timings_are_joined_where_they_are_here(irregular, capsys):
    clock = {"seconds": 0.5, "tokens_per_second": 32.0, "mfu": None, "host_bytes": 2**33, "device_bytes": None}
    old = [{"step": step, "seconds": 0.25, "tokens_per_second": 64.0} for step in (1, 2)]
    rewrite(irregular, "timings", 0, old)
    rewrite(irregular, "timings", 2, [{"step": step} | clock for step in (6, 5)])
    log = read(timings=True)
    assert log["seconds"].to_list() == [0.25, 0.25, None, None, 0.5, 0.5]
    assert log["host_bytes"].to_list() == [None] * 4 + [2**33] * 2
    assert (log.schema["mfu"], log.schema["device_bytes"]) == (pl.Float64, pl.Int64)
    assert log.select(read().columns).equals(read())
    assert "1 of 3 timings are not in this workspace" in capsys.readouterr().err


def test_without_any_timings_their_columns_are_null(irregular):
    log = read(timings=True)
    assert (
        log.select("seconds", "tokens_per_second", "mfu", "host_bytes", "device_bytes").null_count().row(0) == (6,) * 5
    )
