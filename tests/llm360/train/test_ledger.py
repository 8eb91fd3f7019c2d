from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import IntegrityError
from llm360.train.ledger import Ledger, chunks_seen

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
