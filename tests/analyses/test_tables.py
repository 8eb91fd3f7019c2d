"""The analyses that read tables: training and trajectories."""

from __future__ import annotations

import polars as pl
import pytest

import registry
from analyses import training, trajectories
from analyses.common.plot import style, svg
from analyses.trajectories import Headline
from llm360.errors import DataError

TRAINING = training.Params(suites=["amber-toy", "crystal-toy"])
ARC = {"arc_challenge": Headline(title="ARC-Challenge", metric="acc_norm", chance=0.25)}
TRAJECTORIES = trajectories.Params(suites=["amber-toy", "crystal-toy"], tasks=ARC)


def frame_of(module, params) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(module.rows(registry.suite(suite), params)) for suite in params.suites])


def test_training_has_every_step_of_the_log(workspace):
    frame = frame_of(training, TRAINING)
    for suite in TRAINING.suites:
        log = registry.load_metrics(suite)
        assert frame.filter(suite=suite).select(log.columns).equals(log)


def test_a_phase_starts_where_the_last_one_ended(workspace):
    frame = frame_of(training, TRAINING).filter(suite="crystal-toy")
    end = frame.filter(phase="phase1")["tokens_seen"].max()
    assert frame.filter(phase="phase2")["phase_start"].unique().to_list() == [end]


def test_training_summary_and_plots_agree_with_the_log(workspace):
    frame = frame_of(training, TRAINING)
    numbers, table = training.summary(frame), training.plots(frame)["training"]
    assert numbers["amber-toy/loss/first"] == registry.load_metrics("amber-toy")["loss"][0]
    assert numbers["amber-toy/loss/last"] == table.filter(suite="amber-toy")["loss"][-1]
    assert numbers["crystal-toy/steps"] == 6


def test_trajectories_keep_every_result_and_name_the_headline(workspace):
    frame = frame_of(trajectories, TRAJECTORIES)
    assert len(frame) == 2 * 3 * 2
    assert trajectories.headlines(frame)["metric"].unique().to_list() == ["acc_norm"]
    assert trajectories.summary(frame)["amber-toy/arc_challenge/acc_norm"] == pytest.approx(0.27)


def test_trajectories_are_placed_in_tokens(workspace):
    frame = frame_of(trajectories, TRAJECTORIES).filter(suite="crystal-toy", metric="acc").sort("ckpt")
    assert frame["tokens_seen"].to_list() == [registry.checkpoint("crystal-toy", ckpt=c).tokens_seen for c in range(3)]


def test_a_task_that_was_not_evaluated_is_an_error_with_the_nearest(workspace):
    tasks = {"arc_chalenge": ARC["arc_challenge"]}
    with pytest.raises(DataError, match="did you mean 'arc_challenge'"):
        trajectories.rows(registry.suite("amber-toy"), trajectories.Params(suites=["amber-toy"], tasks=tasks))


@pytest.mark.parametrize(("module", "params"), [(training, TRAINING), (trajectories, TRAJECTORIES)])
def test_equal_rows_give_equal_bytes(workspace, module, params):
    frame = frame_of(module, params)
    with style():
        first, second = ({n: svg(f) for n, f in module.figures(frame, params).items()} for _ in range(2))
    assert first == second
    assert len(first) == 2
    assert b"<dc:date>" not in b"".join(first.values())
