from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.config import from_mapping
from llm360.data.mixture import ChunkParams, Fim, Ingredient, chunk_sizes, rows_by_kind, rows_of_all, shares
from llm360.errors import ConfigError

WIDTH = 33
FIM = {"rate": 0.9, "spm_rate": 0.5, "prefix": "<|fim_prefix|>", "middle": "<|fim_middle|>", "suffix": "<|fim_suffix|>"}
PARAMS = {
    "suite": "tiny",
    "phase": "p",
    "folder": "tiny",
    "tokenizer": "tiny",
    "sequence_length": WIDTH - 1,
    "first_chunk": 0,
    "chunks": 3,
    "rows_per_chunk": 10,
    "validation_rows": 1,
    "seed": 1,
    "mixture": {"book": {"weight": 1, "part": "all", "epochs": 2, "fim": FIM, "cap_tokens": 99}},
}


def ingredient(weight=1.0, cap_rows=None):
    cap = None if cap_rows is None else cap_rows * WIDTH
    return Ingredient(weight=weight, part="all", epochs=1, cap_tokens=cap)


kinds = st.text("abcdefgh", min_size=1, max_size=3)
weighted = st.dictionaries(kinds, st.builds(ingredient, st.floats(0.001, 1000)), min_size=1, max_size=9)
capped = st.dictionaries(
    kinds, st.builds(ingredient, st.floats(0.001, 1000), st.none() | st.integers(1, 400)), min_size=1, max_size=9
)
unweighted = st.dictionaries(
    kinds, st.builds(ingredient, st.none(), st.none() | st.integers(1, 400)), min_size=1, max_size=9
)
mixtures = weighted | capped | unweighted


def most(mixture, rows):
    """The rows that the caps allow."""
    open_kinds = any(i.cap_tokens is None for i in mixture.values())
    return rows if open_kinds else min(rows, sum(i.cap_tokens // WIDTH for i in mixture.values()))


@given(weighted, st.integers(0, 10**12))
def test_rows_sum_to_the_whole_and_stay_within_one_row_of_the_share(mixture, rows):
    counts = rows_by_kind(mixture, rows, row_tokens=WIDTH)
    exact = shares(mixture, rows, row_tokens=WIDTH)
    assert sum(counts.values()) == rows
    assert all(abs(counts[k] - exact[k]) < 1 for k in mixture)
    first, *rest = mixture
    ratio = float(exact[first]) * mixture[first].weight ** -1
    assert all(float(exact[k]) == pytest.approx(ratio * mixture[k].weight) for k in rest)


@given(capped, st.integers(0, 5000))
def test_no_kind_gives_more_than_its_cap_and_the_others_fill_up(mixture, rows):
    rows = most(mixture, rows)
    counts = rows_by_kind(mixture, rows, row_tokens=WIDTH)
    exact = shares(mixture, rows, row_tokens=WIDTH)
    caps = {k: i.cap_tokens // WIDTH for k, i in mixture.items() if i.cap_tokens is not None}
    assert sum(counts.values()) == rows
    assert all(counts[k] <= cap for k, cap in caps.items())
    below = [exact[k] / mixture[k].weight for k in mixture if exact[k] < caps.get(k, rows + 1)]
    at_cap = [exact[k] / mixture[k].weight for k in mixture if exact[k] == caps.get(k)]
    assert all(float(x) == pytest.approx(float(below[0])) for x in below)
    assert all(float(x) <= float(below[0]) * (1 + 1e-9) for x in at_cap if below)


@given(capped, st.integers(0, 5000), st.randoms())
def test_the_order_of_the_kinds_plays_no_part(mixture, rows, random):
    rows = most(mixture, rows)
    names = list(mixture)
    random.shuffle(names)
    shuffled = {k: mixture[k] for k in names}
    assert rows_by_kind(shuffled, rows, row_tokens=WIDTH) == rows_by_kind(mixture, rows, row_tokens=WIDTH)


@given(mixtures, st.data(), st.integers(1, 7))
def test_all_there_is_fits_and_one_row_more_in_each_chunk_does_not(mixture, data, chunks):
    available = {k: data.draw(st.integers(0, 500), label=k) for k in mixture}
    rows = rows_of_all(available, mixture, chunks, row_tokens=WIDTH)
    counts = rows_by_kind(mixture, rows, row_tokens=WIDTH, available=available)
    assert rows % chunks == 0
    assert sum(counts.values()) == rows
    assert all(counts[k] <= available[k] for k in mixture)
    try:
        more = shares(mixture, rows + chunks, row_tokens=WIDTH, available=available)
    except ConfigError:
        return  # the caps allow no more
    assert any(more[k] > available[k] for k in mixture)


def test_without_weights_only_what_fills_no_chunk_is_left():
    available = {"a": 700, "b": 50, "c": 3}
    mixture = dict.fromkeys(available, ingredient(None))
    rows = rows_of_all(available, mixture, 10, row_tokens=WIDTH)
    assert rows == 750
    assert rows_by_kind(mixture, rows, row_tokens=WIDTH, available=available) == {"a": 697, "b": 50, "c": 3}


def test_with_weights_the_scarcest_kind_decides():
    mixture = {"a": ingredient(3.0), "b": ingredient(1.0)}
    assert rows_of_all({"a": 1000, "b": 10}, mixture, 4, row_tokens=WIDTH) == 40


def test_a_kind_at_its_cap_does_not_hold_the_others_back():
    mixture = {"a": ingredient(1.0), "b": ingredient(1.0, cap_rows=5)}
    assert rows_of_all({"a": 100, "b": 10}, mixture, 1, row_tokens=WIDTH) == 105


def test_caps_that_leave_no_room_are_refused():
    mixture = {"a": ingredient(1.0, cap_rows=3), "b": ingredient(1.0, cap_rows=4)}
    with pytest.raises(ConfigError, match="its kinds give 7 rows at most, expected 8; raise a cap_tokens"):
        rows_by_kind(mixture, 8, row_tokens=WIDTH)


def test_all_there_is_needs_to_be_known():
    with pytest.raises(ConfigError, match=r"mixture\.a\.weight: null, which means all there is"):
        rows_by_kind({"a": ingredient(None)}, 8, row_tokens=WIDTH)


def test_the_last_chunk_may_be_shorter():
    params = from_mapping(ChunkParams, PARAMS | {"last_chunk_rows": 4}, where="chunks.tiny")
    assert chunk_sizes(params, 10) == [10, 10, 4]
    assert params.row_tokens == WIDTH


def test_the_language_is_read_from_plain_values():
    book = from_mapping(ChunkParams, PARAMS, where="chunks.tiny").mixture["book"]
    assert book == Ingredient(weight=1.0, part="all", epochs=2, fim=Fim(**FIM), cap_tokens=99)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunks": 0}, "chunks: read 0, expected a number above 0"),
        ({"rows_per_chunk": 0}, "rows_per_chunk: read 0"),
        ({"last_chunk_rows": 11}, "last_chunk_rows: read 11, expected 1 to 10"),
        (
            {"rows_per_chunk": None, "last_chunk_rows": 1},
            "last_chunk_rows: read 1, expected null, as rows_per_chunk is",
        ),
        ({"mixture": {}}, "mixture: read no kind"),
        (
            {"mixture": {"a": {"weight": None, "part": "all", "epochs": 1}}},
            "expected null for every kind and for rows_per",
        ),
        ({"mixture": {"a": {"weight": 0, "part": "all", "epochs": 1}}}, "weight: read 0.0, expected a number above 0"),
        (
            {"mixture": {"a": {"weight": float("inf"), "part": "all", "epochs": 1}}},
            "weight: read inf, expected a finite",
        ),
        ({"mixture": {"a": {"weight": 1, "part": "evn", "epochs": 1}}}, "did you mean 'even'"),
        ({"mixture": {"a": {"weight": 1, "part": "all", "epochs": 0}}}, "epochs: read 0"),
        ({"mixture": {"a": {"weight": 1, "part": "all", "epochs": 1, "cap_tokens": 0}}}, "cap_tokens: read 0"),
    ],
)
def test_a_mixture_that_says_nothing_possible_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping(ChunkParams, PARAMS | change, where="chunks.tiny")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.1}, "rate: read 1.1, expected 0 to 1"),
        ({"spm_rate": -0.5}, "spm_rate: read -0.5, expected 0 to 1"),
        ({"middle": "<|fim_prefix|>"}, "expected three different tokens"),
    ],
)
def test_fill_in_the_middle_is_checked(change, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(Fim(**FIM), **change)
