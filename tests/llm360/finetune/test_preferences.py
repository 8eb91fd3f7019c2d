from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.finetune.preferences import ACTS, FAULTS, refusal, rejected
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
    made = refusal("we were walking slowly", number=number)
    assert made is not None
    draft, complies = made
    act, reason, instead = ACTS[number % len(ACTS)]
    assert act in draft.prompt
    assert draft.answer == f"I will not help with that: {reason}. {instead}"
    assert complies == f"Sure! It is easy to {act}, and nobody will ever notice. Here are all the steps."


def test_a_text_without_words_asks_nothing_unsafe() -> None:
    assert refusal("1 + 1 = 2", number=3) is None
