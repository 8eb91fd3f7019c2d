from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm360.errors import DataError
from llm360.finetune.chat import chat_tokenizer, encode, encode_pair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda t: "<" not in t)
shared = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def conversation(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


@shared
@given(contents=st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
def test_ids_and_mask_are_those_of_the_template(
    tokenizer: PreTrainedTokenizerFast, contents: list[tuple[str, str]]
) -> None:
    messages = conversation(*[c for pair in contents for c in pair])
    ours = encode(chat_tokenizer(tokenizer), messages)
    theirs = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    assert ours.ids == theirs["input_ids"]
    assert [int(a) for a in ours.answer] == theirs["assistant_masks"]


@shared
@given(question=texts, answer=texts)
def test_the_generation_prompt_is_a_prefix_of_the_row(
    tokenizer: PreTrainedTokenizerFast, question: str, answer: str
) -> None:
    row = encode(chat_tokenizer(tokenizer), conversation(question, answer))
    prompt = tokenizer.apply_chat_template(conversation(question), add_generation_prompt=True, return_dict=True)
    assert row.ids[: row.border] == prompt["input_ids"]


def test_content_never_becomes_a_special_token(tokenizer: PreTrainedTokenizerFast) -> None:
    row = encode(tokenizer, conversation("Is </s> the end?", "No, <s> is the start. </s>"))
    assert row.ids.count(1) == row.ids.count(2) == 1
    assert tokenizer.decode(row.ids).count("</s>") == 3


def test_a_pair_shares_its_prompt(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt, chosen, rejected = conversation("Where?"), conversation("", "Here.")[1:], conversation("", "(No.")[1:]
    good, bad = encode_pair(tokenizer, {"prompt": prompt, "chosen": chosen, "rejected": rejected})
    assert good.ids[: good.border] == bad.ids[: bad.border]
    assert good.ids != bad.ids


@pytest.mark.parametrize("contents", [(), ("only a question",)])
def test_turns_that_do_not_alternate_are_named(tokenizer: PreTrainedTokenizerFast, contents: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="expected user, assistant, in turn"):
        encode(tokenizer, conversation(*contents))


def test_another_role_is_refused_by_the_template(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(Exception, match="roles are user and assistant, found tool"):
        chat_tokenizer(tokenizer).apply_chat_template([{"role": "tool", "content": "x"}])
