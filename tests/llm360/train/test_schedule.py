from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.train.schedule import Schedule

AMBER = Schedule(kind="cosine", peak=3e-4, end=3e-5, warmup_steps=2000, total_steps=274_320, begin=0)


def test_amber_warms_up_to_its_peak_and_ends_at_a_tenth():
    assert AMBER.learning_rate(1999) == AMBER.learning_rate(2000) == 3e-4
    assert AMBER.learning_rate(274_320) == pytest.approx(3e-5)


def test_crystal_phase_1_stops_where_phase_2_begins():
    """Facts: the line for 294,423 steps stands at 0.00879 after 79,721, and phase 2 peaks at 0.0087825."""
    line = Schedule(kind="linear", peak=0.012, end=1.2408e-4, warmup_steps=86, total_steps=294_423, begin=0)
    assert line.learning_rate(79_721) == pytest.approx(0.0087825, rel=1e-3)


@given(
    kind=st.sampled_from(["cosine", "linear"]),
    warmup=st.integers(0, 50),
    length=st.integers(1, 500),
    end=st.floats(0, 0.5),
)
def test_it_rises_then_falls_and_stays_within_its_bounds(kind, warmup, length, end):
    schedule = Schedule(kind=kind, peak=1.0, end=end, warmup_steps=warmup, total_steps=warmup + length, begin=0)
    rates = [schedule.learning_rate(s) for s in range(warmup + length + 3)]
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(0 < r <= 1 + 1e-12 for r in rates[:-3])
    assert rates[-1] == pytest.approx(end)


@given(kind=st.sampled_from(["cosine", "linear"]), begin=st.integers(0, 300), step=st.integers(0, 300))
def test_a_branch_goes_on_along_the_line_of_its_base(kind, begin, step):
    base = Schedule(kind=kind, peak=1.0, end=0.1, warmup_steps=20, total_steps=200, begin=0)
    assert dataclasses.replace(base, begin=begin).learning_rate(step) == base.learning_rate(begin + step)
