from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.data.checks import contamination
from llm360.data.checks.contamination import Contamination, ContaminationParams
from llm360.errors import ConfigError

NUMBERED = [f"word{i}" for i in range(400)]
PARAMS = ContaminationParams(ngram=5, threshold=0.3, rows_listed=2)
FILLER = "plain text of a training row that no benchmark has ever asked about " * 3


def search(items: dict[str, str], rows: list[str], params: ContaminationParams = PARAMS) -> Contamination:
    frame = pl.DataFrame({"task": ["quiz"] * len(items), "item": list(items), "text": list(items.values())})
    found = Contamination(frame, params)
    found.add(rows, chunk=7, first_row=0)
    return found


def item(found: Contamination, name: str = "a") -> dict:
    return found.items().row(by_predicate=pl.col("item") == name, named=True)


words = st.lists(st.sampled_from(NUMBERED), min_size=30, max_size=60, unique=True)


@given(words, st.integers(0, 3))
def test_a_planted_item_is_found_whole_with_its_row(item_words, place):
    rows = [FILLER] * 4
    rows[place] += " ".join(item_words)
    found = search({"a": " ".join(item_words), "b": "none of these words stands in any row at all today"}, rows)
    assert item(found)["share"] == 1.0
    assert found.rows().rows() == [("quiz", "a", 7, place, len(item_words) - 4)]
    assert (item(found, "b")["found"], item(found, "b")["hit"]) == (0, False)


@given(words, st.data())
def test_an_item_with_one_word_in_fifteen_changed_is_still_hit(item_words, data):
    changed = len(item_words) // 15
    places = data.draw(st.sets(st.integers(0, len(item_words) - 1), min_size=changed, max_size=changed))
    edited = ["otherwise" if i in places else w for i, w in enumerate(item_words)]
    found = item(search({"a": " ".join(item_words)}, [FILLER, f"{FILLER} {' '.join(edited)} {FILLER}"]))
    assert found["ngrams"] - changed * PARAMS.ngram <= found["found"] < found["ngrams"]
    assert found["hit"]


@given(words, st.data())
def test_an_item_cut_over_two_rows_loses_what_runs_over_the_cut_only(item_words, data):
    cut = data.draw(st.integers(0, len(item_words)))
    found = search({"a": " ".join(item_words)}, [" ".join(item_words[:cut]), FILLER, " ".join(item_words[cut:])])
    lost = item(found)["ngrams"] - item(found)["found"]
    assert lost == min(cut, len(item_words) - cut, PARAMS.ngram - 1, item(found)["ngrams"])


@given(st.lists(words, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=4))
def test_what_is_found_is_what_sets_of_words_have_in_common(items, rows):
    """The plain definition, word by word, over texts that share many words."""
    grams = [{tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in items]
    seen = {tuple(w[i : i + 5]) for w in rows for i in range(len(w) - 4)}
    found = search({str(i): " ".join(w) for i, w in enumerate(items)}, [" ".join(w) for w in rows]).items()
    assert found["ngrams"].to_list() == [len(g) for g in grams]
    assert found["found"].to_list() == [len(g & seen) for g in grams]


@settings(max_examples=20)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), min_size=1, max_size=4), st.data())
def test_a_text_of_few_words_is_counted_rightly_too(items, data):
    rows = data.draw(st.lists(st.lists(st.sampled_from("abcd"), max_size=12), max_size=4))
    params = ContaminationParams(ngram=2, threshold=0.5, rows_listed=1)
    found = search({str(i): " ".join(w) for i, w in enumerate(items)}, [" ".join(w) for w in rows], params).items()
    seen = {(a, b) for w in rows for a, b in itertools.pairwise(w)}
    assert found["found"].to_list() == [len(set(itertools.pairwise(w)) & seen) for w in items]
    assert found["state"].to_list() == ["checked" if len(w) > 1 else "too short" for w in items]


def test_capitals_and_punctuation_do_not_hide_an_item():
    text = "Which of these would, most likely, make the river flow faster?"
    assert (
        item(search({"a": text}, ["WHICH of these would most likely\nmake   the river -- flow faster"]))["share"] == 1.0
    )


def test_letters_of_any_script_are_words():
    text = "Сколько будет дважды два если считать быстро"
    assert item(search({"a": text}, [text.upper()]))["share"] == 1.0


def test_an_item_of_fewer_words_than_an_n_gram_is_named_too_short_and_never_hit():
    found = search({"a": "What is it?", "b": ""}, ["what is it", ""])
    assert found.items().select("state", "share", "hit").rows() == [("too short", None, False)] * 2
    assert found.rows().is_empty()


def test_the_wording_that_a_benchmark_repeats_is_no_content():
    wording = "which one of the following statements"
    found = search({str(i): wording for i in range(contamination.COMMON + 1)}, [wording])
    assert set(found.items()["state"]) == {"common wording"}
    assert not found.items()["hit"].any()


def test_only_the_rows_that_have_most_of_an_item_are_listed_and_batches_do_not_matter():
    whole, rows = NUMBERED[:20], [" ".join(NUMBERED[:n]) for n in (6, 20, 9, 7)]
    once = search({"a": " ".join(whole)}, rows)
    twice = search({"a": " ".join(whole)}, rows[:3])
    twice.add(rows[3:], chunk=7, first_row=3)
    assert once.rows()["row"].to_list() == [1, 2]
    assert once.rows().equals(twice.rows())
    assert once.items().equals(twice.items())


def test_words_decide_where_hashes_are_alike(monkeypatch):
    """With a multiplier of 0 an n-gram's hash is that of its last word."""
    monkeypatch.setattr(contamination, "MULTIPLIER", 0)
    text, other = "one two three four end", "five six seven eight end"
    assert item(search({"a": text}, [other]))["found"] == 0
    found = search({"a": text, "b": other}, [text])
    assert found.items()["found"].to_list() == [1, 0]


@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_a_threshold_that_is_no_share_is_refused(threshold):
    with pytest.raises(ConfigError, match=f"threshold: read {threshold}, expected a share"):
        ContaminationParams(ngram=5, threshold=threshold, rows_listed=1)
