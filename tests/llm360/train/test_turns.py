"""The rule of Amber's four chunks (paper, section 4.1.5), for any number of them anywhere."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.checkpoint import initial_state
from llm360.errors import TrainingError
from llm360.train.turns import Progress, Turn

AMBER = Progress(first=0, count=360, finished=0, deferred=(), skipped=())


def follow(progress: Progress, fails) -> tuple[list[tuple[Turn, bool]], Progress]:
    """Take every turn; ``fails(chunk, kind)`` says whether it is not finite."""
    taken = []
    while turn := progress.next():
        bad = fails(turn.chunk, turn.kind)
        taken.append((turn, bad))
        progress = (
            progress.failed(turn, len(taken)) if bad else dataclasses.replace(progress, finished=progress.finished + 1)
        )
    return taken, progress


def test_the_papers_story():
    bad = {40, 41, 200, 359}
    taken, end = follow(AMBER, lambda chunk, _: chunk in bad)
    assert [t.chunk for t, _ in taken] == [*range(360), 40, 41, 200, 359, 0, 1, 2, 3]
    assert [t.kind for t, _ in taken[-8:]] == ["retry"] * 4 + ["repeat"] * 4
    assert [f.chunk for f in end.deferred] == [f.chunk for f in end.skipped] == sorted(bad)
    assert end.finished == 360


@given(
    first=st.integers(0, 50),
    count=st.integers(1, 20),
    once=st.sets(st.integers(0, 19)),
    twice=st.sets(st.integers(0, 19)),
)
def test_every_schedule_is_completed_in_bounded_turns(first, count, once, twice):
    chunks = set(range(first, first + count))
    twice = {first + c for c in twice} & chunks
    once = {first + c for c in once} & chunks | twice
    start = Progress(first=first, count=count, finished=0, deferred=(), skipped=())

    def fails(chunk, kind):
        return chunk in (once if kind == "first" else twice)

    if twice == chunks:
        with pytest.raises(TrainingError, match="gives a finite loss"):
            follow(start, fails)
        return
    taken, end = follow(start, fails)
    assert end.finished == count
    assert [t.chunk for t, _ in taken if t.kind == "first"] == sorted(chunks)
    assert [t.chunk for t, _ in taken if t.kind == "retry"] == sorted(once)
    repeated = [t.chunk for t, _ in taken if t.kind == "repeat"]
    assert len(repeated) == len(twice)
    assert repeated[: len(chunks - twice)] == sorted(chunks - twice)[: len(twice)]
    assert len(taken) == count + len(once) + len(twice)


@given(bad=st.sets(st.integers(0, 9), max_size=5))
def test_the_turns_between_two_checkpoints_follow_from_their_states(bad):
    progress = dataclasses.replace(AMBER, count=10)
    taken, _ = follow(progress, lambda chunk, kind: chunk in bad)
    found = []
    while progress.finished < progress.count:
        after, link = progress, []
        while turn := after.next():
            link.append(turn)
            if turn.chunk not in bad:
                break
            after = after.failed(turn, 7)
        after = dataclasses.replace(after, finished=after.finished + 1)
        state = dataclasses.replace(initial_state(0), deferred=after.deferred, skipped=after.skipped)
        told = list(progress.until(state))
        assert [turn for turn, _ in told] == link
        assert [failure is not None for _, failure in told] == [*[True] * (len(link) - 1), False]
        found += told
        progress = after
    assert [turn for turn, _ in found] == [turn for turn, _ in taken]


def test_a_repeated_chunk_that_fails_ends_the_run():
    with pytest.raises(TrainingError, match=r"step 9: chunk 0, repeated to complete the schedule, is not finite now"):
        AMBER.failed(Turn(chunk=0, kind="repeat"), 9)
