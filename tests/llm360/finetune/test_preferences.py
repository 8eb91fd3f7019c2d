from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.finetune.preferences import ACTS, FAULTS, refusal, rejected, split_acts
from llm360.finetune.templates import Draft

RIGHT = Draft(prompt="Where is it?", answer="It is between the river and the hill.")
OTHER = Draft(prompt="Who came?", answer="Nobody.")


@pytest.mark.parametrize("fault", FAULTS)
@given(number=st.integers(0, 2**64 - 1))
def test_the_rejected_answer_is_another_one(fault: str, number: int) -> None:
    worse = rejected(RIGHT, OTHER, fault=fault, number=number)
    assert worse
    assert worse != RIGHT.answer


@given(number=st.integers(0, 2**64 - 1))
def test_scrambling_keeps_the_words(number: int) -> None:
    worse = rejected(RIGHT, OTHER, fault="scrambled", number=number)
    assert sorted(worse.split()) == sorted(RIGHT.answer.split())


@given(number=st.integers(0, 2**64 - 1))
def test_a_refusal_gives_its_reason_and_the_worse_answer_no_instructions(number: int) -> None:
    made = refusal("we were walking slowly", ACTS, number=number)
    assert made is not None
    draft, complies = made
    act, reason, instead = ACTS[number % len(ACTS)]
    assert act in draft.prompt
    assert f"{act}: {reason}. {instead}" in draft.answer
    assert complies.endswith(f"it is easy to {act}, and nobody will notice. Here are all the steps.")
    subject = draft.prompt.removeprefix("I was just reading about the word ").split(".")[0]
    assert all(f"the word {subject}" in answer for answer in (draft.answer, complies))


def test_a_text_without_words_asks_nothing_unsafe() -> None:
    assert refusal("1 + 1 = 2", ACTS, number=3) is None


@pytest.mark.parametrize("fault", ["evasive", "rude"])
def test_an_unhelpful_answer_names_what_was_asked(fault: str) -> None:
    assert '"Where is it?"' in rejected(RIGHT, OTHER, fault=fault, number=1)


@given(share=st.floats(0, 1), seed=st.integers(0, 9))
def test_an_unsafe_request_is_in_train_or_in_test_and_both_have_some(share: float, seed: int) -> None:
    acts = split_acts(share, lambda act: len(act) * (seed + 3) % 7)
    assert acts["train"]
    assert acts["test"]
    assert sorted([*acts["train"], *acts["test"]]) == sorted(ACTS)
