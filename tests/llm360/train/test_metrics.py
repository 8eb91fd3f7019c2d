from __future__ import annotations

import dataclasses
import itertools
import json
import math
import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.checkpoint import initial_state
from llm360.flops import Meter
from llm360.train.loop import StepMetrics
from llm360.train.metrics import clock_lines, gradient_estimates, memory, step_lines

KEY = {"suite": "tiny", "phase": "pretrain", "chunk": 7}
BATCH, STEP_TOKENS = 8, 8 * 16
norms = st.floats(1e-3, 1e3) | st.sampled_from([math.nan, math.inf, 1e200])
coordinates = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


def a_step(**changed):
    known = {"loss": 2.5, "grad_norm": 1.0, "learning_rate": 1e-3, "micro_grad_norm": 1.5, "micro_rows": 2}
    return StepMetrics(**known | {"seconds": 0.5} | changed)


steps = st.builds(
    a_step,
    loss=norms,
    grad_norm=norms,
    micro_grad_norm=norms | st.none(),
    micro_rows=st.sampled_from([1, 4, BATCH]),
    seconds=st.floats(1e-3, 9),
)


def at(step):
    tokens = {"phase_step": step, "tokens_seen": step * STEP_TOKENS}
    return dataclasses.replace(initial_state(0), step=100 + step, **tokens)


def lines(measured, *, before=0, earlier=()):
    return step_lines(measured, key=KEY, before=at(before), step_tokens=STEP_TOKENS, batch_size=BATCH, earlier=earlier)


@settings(max_examples=40, deadline=None)
@given(
    x=st.tuples(coordinates, coordinates, coordinates),
    y=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    micro=st.sampled_from([1, 2]),
)
def test_the_estimates_are_unbiased_over_all_batches_of_a_linear_regression(x, y, micro):
    """Every batch of three rows with replacement: the mean estimates are |G|^2 and tr(Sigma) of the population."""
    x_RD, y_R, w_D = np.array(x), np.array(y), np.array([0.5, -1.0, 2.0, 0.1])
    gradients_RD = (x_RD @ w_D - y_R)[:, None] * x_RD
    found = []
    for rows in itertools.product(range(3), repeat=3):
        batch_BD = gradients_RD[list(rows)]
        norm, micro_norm = (float(np.linalg.norm(part.mean(axis=0))) for part in (batch_BD, batch_BD[:micro]))
        found.append(gradient_estimates(a_step(grad_norm=norm, micro_grad_norm=micro_norm, micro_rows=micro), 3))
    mean_D = gradients_RD.mean(axis=0)
    variance = ((gradients_RD - mean_D) ** 2).sum(axis=1).mean()
    size = max(variance, float(mean_D @ mean_D), 1e-6)
    np.testing.assert_allclose(np.mean(found, axis=0), [mean_D @ mean_D, variance], atol=1e-9 * size)


def test_rows_that_agree_have_no_noise_and_rows_that_cancel_have_all_of_it():
    assert lines([a_step(grad_norm=2.0, micro_grad_norm=2.0)])[0]["noise_scale"] == 0.0
    (line,) = lines([a_step(grad_norm=1.0, micro_grad_norm=2.0)])  # |G|^2 = (8 - 2 * 4) / 6 = 0
    assert (line["grad_square"], line["grad_variance"], line["noise_scale"]) == (0.0, 8.0, None)


def test_the_noise_scale_is_the_quotient_of_the_means_so_far():
    measured = [a_step(grad_norm=g, micro_grad_norm=m) for g, m in ((3.0, 4.0), (1.0, 9.0), (5.0, 5.5))]
    found = lines(measured)
    for i, line in enumerate(found, start=1):
        square, variance = (np.mean([f[k] for f in found[:i]]) for k in ("grad_square", "grad_variance"))
        expected = variance / square if square > 0 else None
        assert line["noise_scale"] == pytest.approx(expected)
    assert [f["noise_scale"] is None for f in found] == [False, True, False]


@pytest.mark.parametrize(
    "nothing",
    [{"micro_grad_norm": None}, {"micro_rows": BATCH}, {"loss": math.nan}, {"grad_norm": math.inf},
     {"micro_grad_norm": math.nan}, {"grad_norm": 1e200}],
)  # fmt: skip
def test_a_step_of_one_pass_or_not_finite_adds_nothing(nothing):
    alone, beside = lines([a_step()]), lines([a_step(**nothing), a_step()])
    assert (beside[0]["grad_square"], beside[0]["noise_scale"]) == (None, None)
    assert beside[1]["noise_scale"] == alone[0]["noise_scale"] == pytest.approx(40 / 7)


@settings(deadline=None)
@given(measured=st.lists(steps, max_size=6), data=st.data())
def test_a_pass_resumed_anywhere_has_the_lines_of_the_whole(measured, data):
    cut = data.draw(st.integers(0, len(measured)))
    first, rest = measured[:cut], measured[cut:]
    whole = json.dumps(lines(measured), allow_nan=False)
    assert json.dumps(lines(first) + lines(rest, before=cut, earlier=first), allow_nan=False) == whole


def test_a_line_names_its_step_in_the_suite_and_in_the_phase():
    second = lines([a_step(), a_step(loss=math.nan)])[1]
    assert second == KEY | {
        "step": 102,
        "phase_step": 2,
        "tokens_seen": 2 * STEP_TOKENS,
        "loss": None,
        "grad_norm": 1.0,
        "learning_rate": 1e-3,
        "grad_square": None,
        "grad_variance": None,
        "noise_scale": pytest.approx(40 / 7),
    }


def test_what_a_clock_says_is_apart():
    meter = Meter(flops_per_token=1e3, peak_flops=1e6)
    timed = {"key": KEY, "before": at(0), "step_tokens": STEP_TOKENS}
    first, second = clock_lines([a_step(), a_step(seconds=0.25)], **timed, meter=meter)
    assert (first["step"], first["seconds"], first["tokens_per_second"]) == (101, 0.5, 256.0)
    assert second["mfu"] == pytest.approx(512 * 1e3 / 1e6)
    assert clock_lines([a_step()], **timed)[0]["mfu"] is None
    assert not {"seconds", "mfu", "host_bytes"} & lines([a_step()])[0].keys()


def test_memory_grows_by_what_is_held():
    before, size = memory()["host_bytes"], 64_000_000
    with mmap.mmap(-1, size) as held:  # malloc may have it from what was freed before
        held.write(b"1" * size)
        assert memory()["host_bytes"] - before > 0.9 * size
    assert memory()["device_bytes"] is None
