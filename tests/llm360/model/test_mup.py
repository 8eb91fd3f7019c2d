"""The coordinate check: with muP no activation grows with the width, and without it they do."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.mup import BASE, Task, coordinates, slope

WIDTHS = (BASE, 2 * BASE, 4 * BASE, 8 * BASE)
STEPS = 5


def growth(*, mup: bool) -> dict[str, tuple[float, float]]:
    """Return the power of the width that each activation grows with: before the first step, and after STEPS."""
    runs = [
        coordinates(Task(corpus=Path(argparse.__file__), width=w, mup=mup, rate=0.01, steps=STEPS, batch=4, seed=1))
        for w in WIDTHS
    ]
    return {name: tuple(slope(WIDTHS, [run[name][s] for run in runs]) for s in (0, STEPS)) for name in runs[0]}


@pytest.fixture(scope="module")
def with_mup():
    return growth(mup=True)


@pytest.fixture(scope="module")
def without():
    return growth(mup=False)


def test_initial_activations_do_not_grow(with_mup):
    for name, (first, _) in with_mup.items():  # what has not been learnt shrinks like the root of the width
        assert first == pytest.approx(0.0 if "layer" in name else -0.5, abs=0.15), name


def test_learnt_activations_are_stable_over_the_width(with_mup):
    for name, (_, last) in with_mup.items():
        assert abs(last) < 0.35, f"{name}: {last:+.2f}"


def test_without_mup_they_grow(without):
    for name, (_, last) in without.items():
        if name != "logits":  # a norm stands before them
            assert last > 0.9, f"{name}: {last:+.2f}"
