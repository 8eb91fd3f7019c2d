from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.data.documents import KINDS
from llm360.finetune.templates import DRAFTS_PER_DOCUMENT, TEMPLATES, drafts

CASES = [
    ("starcoderdata", "docstring", "What does the Python function `add_7` do?", "Return the sum of a and b"),
    ("starcoderdata", "signature", "with offset 7.", "def add_7(a, b):"),
    ("starcoderdata", "code", "Continue the code:\ndef add_7(a, b):", "third_7 = 3"),
    ("wikipedia", "definition", "Define term7.", "The entry number 7 of a small dictionary"),
    ("stackexchange", "question", "What is the purpose of item number 7?", "The item number 7 serves"),
    ("book", "correct_case", "THE SMALL VILLAGE NUMBER 7 LIES", "The small village number 7 lies"),
    ("book", "first_words", "The small village number 7", "The small village"),
    ("book", "passage", "Continue the passage: The small village", "travellers."),
]


@pytest.mark.parametrize(("kind", "template", "prompt", "answer"), CASES)
def test_a_template_asks_and_answers(texts: dict[str, str], kind: str, template: str, prompt: str, answer: str) -> None:
    first = drafts(kind, template, texts[kind].format(n=7))[0]
    assert prompt in first.prompt
    assert answer in first.answer


def test_every_template_has_a_case() -> None:
    assert {case[1] for case in CASES} == set(TEMPLATES)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=400), kind=st.sampled_from(KINDS), template=st.sampled_from(TEMPLATES))
def test_any_text_gives_a_few_drafts_or_none(text: str, kind: str, template: str) -> None:
    made = drafts(kind, template, text)
    assert len(made) <= DRAFTS_PER_DOCUMENT
    assert all(d.prompt and d.answer for d in made)


def test_code_that_is_not_python_has_the_language_free_template() -> None:
    go = "package main\n" + "\n".join(f"func f{i}() {{}}" for i in range(20))
    assert not drafts("starcoderdata", "docstring", go)
    assert drafts("starcoderdata", "code", go)


def test_contents_under_a_question_are_no_answer() -> None:
    assert not drafts("stackexchange", "question", "What is it all about?\n\n1 What is this?\n2 What is that?\n")
