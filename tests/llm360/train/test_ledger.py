from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import IntegrityError
from llm360.train.ledger import Ledger, chunks_seen, passes, phase_started, read_events

EVENTS = [
    {"event": "chunk_finished", "chunk": 0},
    {"event": "checkpoint_saved", "ckpt": 0},
    {"event": "chunk_finished", "chunk": 1},
    {"event": "checkpoint_saved", "ckpt": 1},
]


@given(cut=st.integers(0, 400))
def test_a_line_cut_by_a_kill_is_dropped_and_whole_lines_stay(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("l") / "ledger.jsonl"
    Ledger(path).record(*EVENTS)
    whole = path.read_bytes()
    os.truncate(path, min(cut, len(whole)))
    kept = Ledger(path).events()
    assert kept == EVENTS[: len(kept)]
    assert len(kept) == whole[:cut].count(b"\n")
    Ledger(path).record(*EVENTS[len(kept) :])
    assert path.read_bytes() == whole


def test_a_cached_copy_is_not_written_through_its_link(tmp_path):
    Ledger(tmp_path / "cache.jsonl").record(EVENTS[0])
    os.link(tmp_path / "cache.jsonl", tmp_path / "ledger.jsonl")
    Ledger(tmp_path / "ledger.jsonl").record(EVENTS[1])
    assert len(Ledger(tmp_path / "cache.jsonl").events()) == 1


def test_an_event_is_recorded_once(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.record(*EVENTS[:3])
    ledger.record(*EVENTS)
    assert ledger.events() == EVENTS


def test_chunks_seen_are_read_from_the_events():
    assert chunks_seen(EVENTS, ckpt=0) == [0]
    assert chunks_seen(EVENTS, ckpt=1) == [0, 1]
    with pytest.raises(IntegrityError, match="no checkpoint 7"):
        chunks_seen(EVENTS, ckpt=7)


def test_a_line_that_is_not_json_is_named(tmp_path):
    (tmp_path / "ledger.jsonl").write_text("{\n")
    with pytest.raises(IntegrityError, match=r"ledger\.jsonl: a line is not JSON"):
        Ledger(tmp_path / "ledger.jsonl").events()


def test_reading_leaves_a_ledger_that_is_being_written_as_it_is(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).record(*EVENTS)
    whole = path.read_bytes() + b'{"event": "chunk_sta'
    path.write_bytes(whole)
    assert read_events(path) == EVENTS
    assert path.read_bytes() == whole


BEGUN = {"event": "phase_started", "phase": "pretrain", "seed": 3}


def turn(chunk: int, *, step: int, steps: int) -> list[dict]:
    started = {"event": "chunk_started", "chunk": chunk, "step": step - steps, "batch_size": 2, "sha256": "a"}
    started |= {"turn": "first"}
    counts = {"ckpt": step, "step": step, "steps": steps, "rows_unused": 1, "tokens_seen": step * 16}
    return [started, {"event": "chunk_finished", "chunk": chunk, **counts}]


def test_a_pass_says_which_positions_each_of_its_steps_read():
    first, again = passes([BEGUN, *turn(0, step=3, steps=3), *turn(0, step=5, steps=2)])
    assert (first.number, first.first_step, first.last_step, first.rows) == (1, 1, 3, 6)
    assert [first.step_at(p) for p in range(7)] == [1, 1, 2, 2, 3, 3, None]
    assert (again.number, list(again.positions(5))) == (2, [2, 3])


def test_a_chunk_that_was_begun_and_not_finished_is_no_pass():
    skipped = turn(1, step=9, steps=2)[:1]
    assert [p.chunk for p in passes([BEGUN, *turn(0, step=3, steps=3), *skipped, *turn(2, step=4, steps=1)])] == [0, 2]


def test_a_ledger_that_cannot_tell_the_order_says_what_is_missing():
    with pytest.raises(IntegrityError, match="has no seed for chunk 0; expected phase_started, chunk_started"):
        passes([{"event": "phase_started", "phase": "pretrain"}, *turn(0, step=3, steps=3)])
    with pytest.raises(IntegrityError, match="has no turn for chunk 0"):
        passes([BEGUN, turn(0, step=3, steps=3)[1]])
    with pytest.raises(IntegrityError, match=r"from step 3 \(chunk 0\) to step 5 \(chunk 2\), expected 4"):
        passes([BEGUN, *turn(0, step=3, steps=3), *turn(2, step=5, steps=1)])
    with pytest.raises(IntegrityError, match="no phase_started with the seed of the order"):
        phase_started(EVENTS)
