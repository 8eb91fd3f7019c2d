from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analyses.common.statistics import chi_square, chi_square_p

counts = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=2, max_size=8)


@given(counts)
def test_the_statistic_is_scipys(rows):
    table = np.array(rows)
    test = chi_square(table)
    kept = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(kept.shape) < 2:
        assert test is None
    else:
        known = stats.chi2_contingency(kept, correction=False)
        assert (test.statistic, test.degrees) == (pytest.approx(known.statistic), known.dof)


@pytest.mark.parametrize(("degrees", "within"), [(1, 0.06), (3, 0.006), (10, 0.002), (54, 0.0003), (2154, 0.00001)])
def test_p_is_scipys_within_what_its_docstring_says(degrees, within):
    for exact in np.linspace(0.0005, 0.9995, 200):
        assert chi_square_p(stats.chi2.isf(exact, degrees), degrees) == pytest.approx(exact, abs=within)


def test_p_is_one_where_nothing_differs():
    assert chi_square(np.array([[5, 10], [5, 10]])).p > 0.9


def test_shuffled_rows_have_a_p_like_any_other_and_sorted_ones_none():
    """Rows of a mixture of seven kinds, 32 to a chunk as in mini: a shuffle is seen as one, an order is not."""
    kinds = np.repeat(np.arange(7), [16, 15, 106, 355, 156, 12, 12])
    ps = []
    for seed in range(100):
        chunks = np.random.default_rng(seed).permutation(kinds).reshape(-1, 32)
        ps.append(chi_square(np.array([np.bincount(c, minlength=7) for c in chunks])).p)
    assert 0.3 < np.mean(ps) < 0.7
    assert np.mean(np.array(ps) < 0.05) < 0.12
    ordered = np.array([np.bincount(c, minlength=7) for c in kinds.reshape(-1, 32)])
    assert chi_square(ordered).p < 1e-9
