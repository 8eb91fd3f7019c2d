from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data.mixture import Fim
from llm360.data.tokens.encoder import load_encoder
from llm360.data.tokens.fim import FimIds, fill_in_the_middle, fim_ids, restore
from llm360.errors import ConfigError, DataError

PRE, MID, SUF = 900, 901, 902
MANY = 4000


def fim(rate=1.0, spm_rate=0.5):
    return FimIds(rate=rate, spm_rate=spm_rate, prefix=PRE, middle=MID, suffix=SUF)


def filled(ids, made, document="d", seed=1, epoch=0):
    return fill_in_the_middle(np.array(ids, dtype=np.uint32), made, seed=seed, document=document, epoch=epoch)


def within_binomial_error(count, rate, of):
    return abs(count - rate * of) <= 4 * math.sqrt(of * rate * (1 - rate))


tokens = st.lists(st.integers(0, 899), max_size=50)


@given(tokens, st.text(), st.integers(0, 9), st.floats(0, 1))
def test_the_original_is_recovered_and_every_token_is_kept(ids, document, epoch, spm_rate):
    made = filled(ids, fim(spm_rate=spm_rate), document, epoch=epoch)
    if not ids:
        assert made is None
        return
    assert made.dtype == np.uint32
    assert sorted(made.tolist()) == sorted([*ids, PRE, MID, SUF])
    assert restore(made, fim()).tolist() == ids


@given(tokens, st.text())
def test_it_is_a_pure_function_and_leaves_its_input_alone(ids, document):
    given_ids = np.array(ids, dtype=np.uint32)
    given_ids.flags.writeable = False
    first, second = (fill_in_the_middle(given_ids, fim(), seed=3, document=document, epoch=1) for _ in range(2))
    assert (first is None and second is None) or np.array_equal(first, second)
    assert given_ids.tolist() == ids


def test_the_orders_are_those_of_the_paper():
    psm, spm = filled(range(100), fim(spm_rate=0.0)).tolist(), filled(range(100), fim(spm_rate=1.0)).tolist()
    first, last = psm.index(SUF) - 1, psm[psm.index(MID) + 1]
    end = last + len(psm) - psm.index(MID) - 1
    p, m, s = [*range(first)], [*range(last, end)], [*range(end, 100)]
    assert psm == [PRE, *p, SUF, *s, MID, *m]
    assert spm == [PRE, SUF, *s, MID, *p, *m]


def test_the_draws_do_not_change_between_releases():
    # sha256("fim/7/arxiv/1/1") as four fractions: 0.146, 0.858 (so PSM), 0.621 and 0.776: cuts 5 and 6 of 0 to 8
    made = filled(range(8), fim(), document="arxiv/1", seed=7, epoch=1)
    assert made.tolist() == [PRE, 0, 1, 2, 3, 4, SUF, 6, 7, MID, 5]


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 1.0])
def test_rate_is_the_share_of_documents(rate):
    changed = sum(filled([1, 2], fim(rate), str(d)) is not None for d in range(MANY))
    assert within_binomial_error(changed, rate, MANY)


@pytest.mark.parametrize("spm_rate", [0.0, 0.5, 1.0])
def test_spm_rate_is_the_share_of_the_changed_ones(spm_rate):
    both = [
        (filled(range(30), fim(1.0, spm_rate), str(d)), filled(range(30), fim(1.0, 0.0), str(d))) for d in range(MANY)
    ]
    told_apart = [made for made, psm in both if psm[1] != SUF]  # without a first part the two orders are one
    spm = sum(made[1] == SUF for made in told_apart)
    assert within_binomial_error(spm, spm_rate, len(told_apart))


def test_cuts_are_uniform_over_the_places_between_tokens():
    n = 9
    counts = np.zeros(n + 1)
    for document in range(MANY):
        ids = filled(range(n), fim(spm_rate=0.0), str(document)).tolist()
        counts[ids.index(SUF) - 1] += 1
        counts[n - (ids.index(MID) - ids.index(SUF) - 1)] += 1
    expected = 2 * MANY / (n + 1)
    assert ((counts - expected) ** 2 / expected).sum() < 33  # chi-square, 9 degrees of freedom: p = 0.0001


@pytest.mark.parametrize("changed", [{"document": "e"}, {"seed": 2}, {"epoch": 1}])
def test_document_seed_and_epoch_draw_anew(changed):
    assert filled(range(1000), fim()).tolist() != filled(range(1000), fim(), **changed).tolist()


@pytest.mark.parametrize("document", ["a", "b", "c", "d"])
def test_one_token_stays_one_token(document):
    made = filled([5], fim(), document)
    assert sorted(made.tolist()) == [5, PRE, MID, SUF]
    assert restore(made, fim()).tolist() == [5]


def test_a_document_that_was_not_changed_is_its_own_original():
    assert restore(np.array([4, 5], dtype=np.uint32), fim()).tolist() == [4, 5]


def test_a_part_of_a_document_cannot_be_restored():
    with pytest.raises(DataError, match="3 tokens without token 901; expected a whole document"):
        restore(np.array([PRE, 4, SUF], dtype=np.uint32), fim())


def names(**changed):
    given = {"prefix": "<|fim_prefix|>", "middle": "<|fim_middle|>", "suffix": "<|fim_suffix|>"}
    return Fim(rate=0.9, spm_rate=0.5, **{**given, **changed})


def test_names_become_ids(tokenizer_folder):
    encoder = load_encoder(tokenizer_folder)
    ids = fim_ids(names(), encoder)
    assert (ids.rate, ids.spm_rate, ids.prefix) == (0.9, 0.5, encoder.token_id("<|fim_prefix|>"))
    assert len({ids.prefix, ids.middle, ids.suffix}) == 3


def test_an_unknown_token_is_refused(tokenizer_folder):
    with pytest.raises(ConfigError, match=r"'<fim_middle>' is no special token .* did you mean '<\|fim_middle\|>'"):
        fim_ids(names(middle="<fim_middle>"), load_encoder(tokenizer_folder))


def test_one_token_for_two_places_is_refused(tokenizer_folder):
    with pytest.raises(ConfigError, match="expected three different tokens"):
        fim_ids(names(middle="<|fim_suffix|>"), load_encoder(tokenizer_folder))


@pytest.mark.parametrize("taken", ["</s>", "<s>", "<unk>"])
def test_a_token_with_a_meaning_of_its_own_is_refused(tokenizer_folder, taken):
    fim = Fim(rate=0.5, spm_rate=0.5, prefix=taken, middle="<|fim_middle|>", suffix="<|fim_suffix|>")
    with pytest.raises(ConfigError, match=f"fim: '{taken}' has a meaning of its own, expected a token for this alone"):
        fim_ids(fim, load_encoder(tokenizer_folder))
