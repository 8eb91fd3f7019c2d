from __future__ import annotations

import pytest

from llm360 import progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when the test says so; lines as in a log."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    return now


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(clock, capsys):
    for _ in progress.track(range(4), label="work", total=6, done=2):
        clock[0] += 6
    assert capsys.readouterr().err.splitlines() == ["work: 4/6 (0.2/s, 12 s left)", "work: 6/6 (0.2/s, 0 s left)"]


def test_what_goes_back_and_comes_again_is_shown_as_it_is(clock, capsys):
    with progress.counted(label="work", total=10) as show:
        for count in (1, 2, 1, 2, 3):
            clock[0] += 11
            show(count, "loss 2.0")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines] == [f"work: {n}/10" for n in (1, 2, 1, 2, 3)]
    assert all(line.endswith("left) loss 2.0") for line in lines)
