from __future__ import annotations

import dataclasses
import json
import math

import polars as pl
import pytest

import registry
from analyses import validation
from analyses.common.sources import readers
from analyses.validation import ALL, Params
from llm360.errors import DataError

PARAMS = Params(batch_size=4, checkpoints={"amber-toy": [0, 2]})


def rows_of(suite: str, ckpt: int, batch_size: int = 4) -> pl.DataFrame:
    params = dataclasses.replace(PARAMS, batch_size=batch_size)
    return pl.DataFrame(validation.rows(registry.checkpoint(suite, ckpt=ckpt), params))


@pytest.mark.parametrize("batch_size", [1, 3, 5, 1000])
def test_the_loss_does_not_depend_on_the_batch_size(workspace, batch_size):
    losses = rows_of("amber-toy", 2, batch_size)["loss"].to_list()
    assert losses == pytest.approx(rows_of("amber-toy", 2)["loss"].to_list(), rel=1e-6)


def test_the_loss_is_the_models_own_over_each_kind(workspace):
    import torch

    checkpoint = registry.checkpoint("amber-toy", ckpt=1)
    tokens, kinds = validation.held_out(readers(checkpoint.facts))
    frame = rows_of("amber-toy", 1)
    for kind in sorted(set(kinds)):
        part = torch.from_numpy(tokens[kinds == kind].astype("int64"))
        own = checkpoint.model()(input_ids=part, labels=part).loss.item()
        assert frame.filter(kind=kind)["loss"].item() == pytest.approx(own, rel=1e-5)


def test_all_is_the_mean_over_tokens(workspace):
    frame = rows_of("crystal-toy", 2)
    parts, total = frame.filter(pl.col("kind") != ALL), frame.filter(kind=ALL).row(0, named=True)
    assert total["tokens"] == parts["tokens"].sum()
    assert total["loss"] == pytest.approx((parts["loss"] * parts["tokens"]).sum() / total["tokens"])
    assert total["perplexity"] == pytest.approx(math.exp(total["loss"]))


def test_training_lowers_it(workspace):
    first, last = (rows_of("amber-toy", ckpt).filter(kind=ALL)["loss"].item() for ckpt in (0, 2))
    assert last < first


def test_phases_are_placed_in_tokens(workspace):
    assert rows_of("crystal-toy", 1)["phase_start"].unique().to_list() == [0]
    seen = registry.checkpoint("crystal-toy", ckpt=1).tokens_seen
    assert rows_of("crystal-toy", 2)["phase_start"].unique().to_list() == [seen]


def test_phases_that_hold_out_different_rows_are_refused(workspace):
    reader, other = readers(registry.suite("crystal-toy"))[0], readers(registry.suite("amber-toy"))[0]
    rows, kinds = other.validation()

    class Changed:
        folder = other.folder

        def validation(self):
            return rows[1:], kinds[1:]

    assert len(validation.held_out([reader, other])[0]) == len(rows)
    with pytest.raises(DataError, match="hold out different rows"):
        validation.held_out([reader, Changed()])


def test_the_summary_is_flat_and_finite(workspace):
    numbers = validation.summary(pl.concat([rows_of("amber-toy", 0), rows_of("amber-toy", 2)]))
    assert numbers["amber-toy/last/all"] < numbers["amber-toy/first/all"]
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
