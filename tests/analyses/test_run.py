from __future__ import annotations

import types

import pytest

from analyses import memorization
from analyses.common import run as runner
from analyses.common.run import load, names, run
from analyses.memorization import Params
from llm360.errors import ConfigError, DataError, StoreUnavailable
from llm360.files import sha256_file, verify

PARAMS = Params(k=8, l=8, rows_per_chunk=2, chunk_every=1, seed=7, batch_size=8, checkpoints={"amber-toy": [0, 2]})
RECIPE = {"params": {"k": 8}, "code": "c"}


def build(folder, params=PARAMS, recipe=RECIPE) -> dict[str, str]:
    run(memorization, params, folder, name="memorization", recipe=recipe)
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def with_checkpoints(*ckpts: int) -> Params:
    return Params(**{**vars(PARAMS), "checkpoints": {"amber-toy": list(ckpts)}})


@pytest.fixture
def loaded(monkeypatch):
    """The checkpoints whose rows were computed, in order."""
    seen, rows = [], memorization.rows
    monkeypatch.setattr(memorization, "rows", lambda c, p: seen.append(c.ckpt) or rows(c, p))
    return seen


def test_the_folder_holds_rows_numbers_tables_and_figures(workspace, tmp_path):
    files = build(tmp_path / "out")
    assert {"manifest.json", "summary.json", "memorization.csv", "figures/groups-amber-toy.svg"} <= files.keys()
    assert {"rows/amber-toy/ckpt_000.parquet", "rows/amber-toy/ckpt_002.parquet"} <= files.keys()
    verify(tmp_path / "out")


def test_two_runs_give_equal_bytes(workspace, tmp_path):
    assert build(tmp_path / "a") == build(tmp_path / "b")


def test_finished_rows_are_kept_and_a_new_checkpoint_adds_only_its_own(workspace, tmp_path, loaded):
    build(tmp_path / "out")
    build(tmp_path / "out", with_checkpoints(0, 1, 2))
    assert loaded == [0, 2, 1]


def test_a_run_that_was_killed_between_checkpoints_ends_with_the_same_bytes(workspace, tmp_path, monkeypatch):
    whole, rows = build(tmp_path / "whole"), memorization.rows

    def killed(checkpoint, params):
        if checkpoint.ckpt == 2:
            raise KeyboardInterrupt
        return rows(checkpoint, params)

    monkeypatch.setattr(memorization, "rows", killed)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.setattr(memorization, "rows", rows)
    assert build(tmp_path / "out") == whole


def test_a_checkpoint_taken_out_leaves_nothing_behind(workspace, tmp_path):
    fewer = build(tmp_path / "fewer", with_checkpoints(2))
    (tmp_path / "out" / "rows").mkdir(parents=True)
    (tmp_path / "out" / "rows" / ".partial-x").write_text("half")
    build(tmp_path / "out")
    assert build(tmp_path / "out", with_checkpoints(2)) == fewer


@pytest.mark.parametrize("recipe", [{**RECIPE, "code": "d"}, {**RECIPE, "params": {"k": 9}}])
def test_rows_of_another_recipe_are_made_again(workspace, tmp_path, loaded, recipe):
    build(tmp_path / "out")
    build(tmp_path / "out", recipe=recipe)
    assert loaded == [0, 2, 0, 2]


def test_rows_of_another_checkpoint_are_made_again(workspace, tmp_path, loaded, monkeypatch):
    build(tmp_path / "out")
    monkeypatch.setattr(runner, "manifest_sha256", lambda folder: "another")
    build(tmp_path / "out")
    assert loaded == [0, 2, 0, 2]


def test_a_checkpoint_that_is_not_here_is_named(workspace, tmp_path):
    (workspace.artifacts / "checkpoints" / "amber-toy" / "ckpt_002" / "manifest.json").unlink()
    with pytest.raises(StoreUnavailable, match="amber-toy/ckpt-2"):
        build(tmp_path / "out")


def test_no_source_is_an_error(workspace, tmp_path):
    with pytest.raises(DataError, match=r"name one in analyses\.memorization"):
        build(tmp_path / "out", Params(**{**vars(PARAMS), "checkpoints": {}}))


def test_a_summary_that_is_not_finite_is_refused(workspace, tmp_path):
    parts = {part: getattr(memorization, part) for part in runner.PARTS}
    broken = types.SimpleNamespace(**{**parts, "summary": lambda frame: {"x": float("nan")}})
    with pytest.raises(DataError, match="x is nan, expected a finite number"):
        run(broken, PARAMS, tmp_path / "out", name="memorization", recipe=RECIPE)


def test_an_unknown_analysis_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'memorization'"):
        load("memorisation")


@pytest.mark.parametrize("name", names())
def test_each_analysis_holds_all_parts_and_says_what_it_is(name):
    assert ": " in (load(name).__doc__ or "").strip().splitlines()[0]
    assert load(name).CAPTIONS
