from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from llm360.data.order import chunk_order
from llm360.train import batches as module
from llm360.train.batches import batches, rank_rows
from llm360.train.distributed import World


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("block", [1, 2, 5, 4096])
def test_ranks_share_the_rows_of_every_step_in_their_order(monkeypatch, chunks, params, alone, size, block):
    monkeypatch.setattr(module, "BLOCK_ROWS", block)
    params = dataclasses.replace(params, batch_size=6)
    worlds = [World(rank, size, 1, alone.device, None) for rank in range(size)]
    order = chunk_order(seed=params.seed, phase=params.phase, chunk=2, rows=7)
    together = np.concatenate([rank_rows(chunks, 2, params, w) for w in worlds], axis=1)
    assert together.ravel().tolist() == order[:6].tolist()
    tokens = np.concatenate([[b.numpy() for b in batches(chunks, 2, params, w, begin=0)] for w in worlds], axis=1)
    assert (tokens[0] == chunks.tokens(2)[order[:6]]).all()


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_a_chunk_that_is_gone_on_with_gives_the_steps_that_are_left(chunks, params, alone, begin):
    every = list(batches(chunks, 1, params, alone, begin=0))
    rest = list(batches(chunks, 1, params, alone, begin=begin))
    assert [b.tolist() for b in rest] == [b.tolist() for b in every[begin:]]
