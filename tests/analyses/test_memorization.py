from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl
import pytest

import registry
from analyses import memorization
from analyses.memorization import Params
from llm360.errors import DataError
from llm360.model.build import build_model

PARAMS = Params(
    k=8,
    l=8,
    rows_per_chunk=3,
    chunk_every=1,
    seed=7,
    batch_size=4,
    checkpoints={"amber-toy": [0, 1], "crystal-toy": [2]},
)


def rows_of(suite: str, ckpt: int, params: Params = PARAMS) -> pl.DataFrame:
    return pl.DataFrame(memorization.rows(registry.checkpoint(suite, ckpt=ckpt), params))


def test_every_checkpoint_is_asked_the_same_rows(workspace):
    asked = [rows_of("amber-toy", ckpt).select("chunk", "row", "kind") for ckpt in (0, 2)]
    assert asked[0].equals(asked[1])
    assert asked[0].group_by("chunk").agg(n=pl.col("row").n_unique())["n"].to_list() == [3, 3, 3]


def test_row_ids_lead_back_to_the_data(workspace):
    row = memorization.rows(registry.checkpoint("crystal-toy", ckpt=1), PARAMS)[-1]
    chunk = registry.load_chunk("crystal-toy", chunk=row["chunk"])
    assert chunk.provenance["kind"][row["row"]] == row["kind"]
    tokens = memorization.sample(registry.checkpoint("crystal-toy", ckpt=1), PARAMS)["tokens"][-1]
    assert tokens.to_list() == chunk.tokens[row["row"], :16].tolist()


@pytest.mark.parametrize(
    ("suite", "ckpt"), [("amber-toy", 0), ("amber-toy", 2), ("crystal-toy", 1), ("crystal-toy", 2)]
)
def test_seen_is_what_the_checkpoint_was_trained_on_across_phases(workspace, suite, ckpt):
    frame = rows_of(suite, ckpt)
    assert frame.filter("seen")["chunk"].unique().sort().to_list() == list(range(ckpt + 1))
    assert frame["chunk"].unique().sort().to_list() == [0, 1, 2]


@pytest.mark.parametrize("suite", ["amber-toy", "crystal-toy"])
def test_the_score_is_that_of_plain_greedy_decoding(workspace, suite):
    import torch

    checkpoint = registry.checkpoint(suite, ckpt=2)
    model, asked = checkpoint.model(), memorization.sample(checkpoint, PARAMS)["tokens"].to_numpy()
    text = torch.from_numpy(asked[:, :8].copy())
    for _ in range(8):  # no cache, one row after the other's prefix as a whole
        text = torch.cat([text, model(input_ids=text, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    expected = (text[:, 8:].numpy() == asked[:, 8:]).mean(axis=1)
    assert rows_of(suite, 2)["score"].to_list() == expected.tolist()


def test_a_row_that_the_model_wrote_itself_is_extracted_and_one_other_token_is_not():
    import torch

    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "layers": 1,
        "heads": 2,
        "vocab_size": 64,
        "sequence_length": 32,
    }
    model = build_model("amber", {**sizes, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "init_std": 0.5}, seed=3).eval()

    prompts = torch.arange(12).reshape(3, 4)
    written = torch.cat([prompts, memorization.continuation(model, prompts, length=6)], dim=1).numpy()
    assert memorization.matches(model, written, k=4, batch_size=2).all()
    other = written.copy()
    other[0, -1] = (other[0, -1] + 1) % 64
    assert memorization.matches(model, other, k=4, batch_size=3).mean(axis=1).tolist() == [5 / 6, 1.0, 1.0]


def test_the_batch_size_does_not_change_the_rows(workspace):
    one = rows_of("amber-toy", 1, dataclasses.replace(PARAMS, batch_size=1))
    assert one.equals(rows_of("amber-toy", 1, dataclasses.replace(PARAMS, batch_size=100)))


def test_scores_are_fractions(workspace):
    scores = rows_of("amber-toy", 2)["score"].to_numpy()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.allclose(scores * 8, np.round(scores * 8))


def test_rows_too_short_are_refused_with_what_to_do(workspace):
    with pytest.raises(DataError, match=r"8 rows of 65 tokens, expected at least 3 of 132; lower k, l"):
        rows_of("amber-toy", 0, dataclasses.replace(PARAMS, k=100, l=32))
    with pytest.raises(DataError, match="expected at least 9"):
        rows_of("amber-toy", 0, dataclasses.replace(PARAMS, rows_per_chunk=9))


def table(scores: dict[int, list[float]], seen: dict[int, int]) -> pl.DataFrame:
    """One chunk per row; checkpoint c has seen the first seen[c] of them."""
    return pl.DataFrame(
        [
            {"suite": "s", "ckpt": c, "tokens_seen": c, "chunk": i, "row": 0, "kind": "book", "seen": i < seen[c],
             "score": x, "extracted": x == 1.0}
            for c, values in scores.items() for i, x in enumerate(values)
        ]
    )  # fmt: skip


def test_correlations_are_over_rows_that_both_have_seen():
    frame = table({1: [0.0, 0.5, 1.0, 0.0], 2: [0.0, 0.5, 1.0, 1.0]}, {1: 3, 2: 4})
    found = memorization.correlations(frame, "score").filter(a=1, b=2).row(0, named=True)
    assert (found["rows"], found["correlation"]) == (3, pytest.approx(1.0))


def test_correlations_without_variance_are_null_and_never_reach_the_summary():
    frame = table({1: [0.5, 0.5, 0.5], 2: [0.0, 0.5, 0.25]}, {1: 3, 2: 3})
    assert memorization.correlations(frame, "score").filter(a=1)["correlation"].null_count() == 2
    numbers = memorization.summary(frame)
    assert numbers["s/correlation/score/undefined"] == 1
    assert "s/correlation/score/mean" not in numbers
    assert all(math.isfinite(v) for v in numbers.values())


def test_histogram_shares_add_up_to_one_over_seen_rows():
    frame = table({1: [0.0, 0.5, 1.0, 0.0], 2: [0.0, 0.0, 1.0, 1.0]}, {1: 3, 2: 4})
    shares = (
        memorization.histogram(frame).group_by("ckpt").agg(pl.col("share").sum(), pl.col("rows").sum()).sort("ckpt")
    )
    assert shares["share"].to_list() == pytest.approx([1.0, 1.0])
    assert shares["rows"].to_list() == [3, 4]
