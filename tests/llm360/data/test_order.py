from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from llm360.data.order import chunk_order, permutation, shuffled, step_rows, steps_in_chunk


@given(size=st.integers(0, 300), words=st.lists(st.text() | st.integers(), max_size=4))
def test_a_permutation_has_each_row_once_and_depends_on_its_words_alone(size, words):
    order = permutation(size, *words)
    assert sorted(order.tolist()) == list(range(size))
    np.testing.assert_array_equal(order, permutation(size, *words))


def test_the_order_is_the_same_on_every_machine_and_in_every_year():
    """Golden numbers: Philox's raw output is fixed by its definition."""
    assert permutation(8, "order", 11111, "pretrain", 355).tolist() == GOLDEN


GOLDEN = [6, 5, 4, 0, 7, 1, 3, 2]


@given(rows=st.integers(1, 200), batch_size=st.integers(1, 50), parts=st.sampled_from([1, 2, 4]))
def test_steps_cover_whole_batches_whatever_the_world_size(rows, batch_size, parts):
    order = chunk_order(seed=1, phase="p", chunk=0, rows=rows)
    steps = steps_in_chunk(rows=rows, batch_size=batch_size)
    seen = [step_rows(order, step=s, batch_size=batch_size) for s in range(steps)]
    assert all(len(s) == batch_size for s in seen)
    flat = np.concatenate([np.sort(np.concatenate([s[r::parts] for r in range(parts)])) for s in seen] or [order[:0]])
    expected = np.concatenate([np.sort(s) for s in seen] or [order[:0]])
    np.testing.assert_array_equal(flat, expected)
    assert rows - len(flat) == rows % batch_size


def test_chunks_phases_and_seeds_have_orders_of_their_own():
    orders = [
        chunk_order(seed=s, phase=p, chunk=c, rows=64).tobytes() for s in (1, 2) for p in ("a", "b") for c in (0, 1)
    ]
    assert len(set(orders)) == 8


@given(size=st.integers(1, 3000), words=st.lists(st.text() | st.integers(), max_size=3))
def test_shuffled_is_a_permutation_and_each_index_is_computed_alone(size, words):
    whole = shuffled(np.arange(size), size, *words)
    assert sorted(whole.tolist()) == list(range(size))
    some = np.arange(size)[:: max(1, size // 7)]
    np.testing.assert_array_equal(shuffled(some, size, *words), whole[some])


@given(size=st.integers(2**33, 2**50), start=st.integers(0, 2**32))
def test_shuffled_works_at_any_size_without_its_memory(size, start):
    found = shuffled(np.arange(start, start + 500), size, "w")
    assert len(set(found.tolist())) == 500
    assert found.min() >= 0
    assert found.max() < size


@pytest.mark.parametrize("size", [3, 5, 8, 13])
def test_every_place_is_as_likely_as_any_other(size):
    """Over many keys: where the first index goes, and where the first two go, by chi-square."""
    keys = 3000
    found = np.array([shuffled(np.arange(size), size, "uniform", key) for key in range(keys)])
    single = np.bincount(found[:, 0], minlength=size)
    pairs = np.bincount(found[:, 0] * size + found[:, 1], minlength=size * size).reshape(size, size)
    pairs = pairs[~np.eye(size, dtype=bool)]
    for counts in (single, pairs):
        expected = keys / len(counts)
        assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1) > 1e-4


def test_shuffled_is_the_same_on_every_machine_and_in_every_year():
    assert shuffled(np.arange(8), 1_000_003, "shuffle", 11111, "pretrain").tolist() == GOLDEN_SHUFFLED


GOLDEN_SHUFFLED = [333721, 139733, 105844, 20193, 141422, 895815, 572842, 387689]


def test_a_size_may_be_a_number_of_numpys():
    np.testing.assert_array_equal(shuffled(np.arange(9), np.int64(9), "w"), shuffled(np.arange(9), 9, "w"))
