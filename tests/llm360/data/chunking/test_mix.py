from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data.chunking.mix import Mix, Pool, epochs_of
from llm360.errors import DataError


@st.composite
def mixes(draw):
    pools = []
    for number in range(draw(st.integers(1, 4))):
        rows = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
        files = [f"{number}-{i}" for i in range(len(rows))]
        wanted = draw(st.integers(0, sum(rows)))
        pools.append(Pool(kind=f"k{number % 3}", epoch=number // 3, files=files, rows=rows, wanted=wanted))
    return Mix(seed=draw(st.integers(0, 9)), phase="p", pools=pools)


@given(mix=mixes(), block=st.integers(1, 50))
def test_each_place_has_a_row_of_its_own_and_pools_give_what_is_wanted(mix, block):
    found = []
    for start in range(0, mix.rows, block):
        where = mix.locate(np.arange(start, min(start + block, mix.rows)))
        found += list(zip(where.pool.tolist(), where.file.tolist(), where.row.tolist(), strict=True))
    assert len(set(found)) == len(found) == mix.rows
    for number, pool in enumerate(mix.pools):
        mine = [(file, row) for p, file, row in found if p == number]
        assert len(mine) == pool.wanted
        assert all(0 <= row < pool.rows[file] for file, row in mine)


@given(available=st.lists(st.integers(0, 50), min_size=1, max_size=4), share=st.floats(0, 1))
def test_epochs_are_read_whole_before_the_next_one_begins(available, share):
    wanted = int(share * sum(available))
    rows = epochs_of("k", wanted, available, row_tokens=9)
    assert sum(rows) == wanted
    last = max((i for i, n in enumerate(rows) if n), default=0)
    assert rows[:last] == available[:last]
    assert not any(rows[last + 1 :])


def test_too_few_rows_are_refused_with_the_arithmetic():
    message = r"k: 8 rows x 9 tokens = 72 tokens are wanted, but it has 3 \+ 4 = 7 rows in 2 epochs; add text"
    with pytest.raises(DataError, match=message):
        epochs_of("k", 8, [3, 4], row_tokens=9)
