from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.data.tokenizer import TokenizerParams, encode, load_encoder, train_tokenizer
from llm360.errors import DataError

SPECIAL = ["<s>", "</s>", "<unk>", "<|fim_prefix|>", "<reserved_0>"]


@pytest.fixture(scope="module")
def crystal(documents):
    params = TokenizerParams(vocab_size=300, sample_mb=1.0, extra_tokens=["<|fim_prefix|>"], reserved=2)
    return train_tokenizer(documents["arxiv"]["text"].to_list(), params)


texts = st.lists(st.text() | st.sampled_from(SPECIAL)).map("".join)


@given(texts)
@settings(max_examples=200)
def test_every_string_round_trips(crystal, text):
    (ids,) = encode(crystal.backend_tokenizer, [text])
    assert crystal.decode(ids.tolist(), skip_special_tokens=False) == text


@given(texts)
def test_no_document_smuggles_a_special_token_in(crystal, text):
    (ids,) = encode(crystal.backend_tokenizer, [text])
    assert not {0, 1, 2} & set(ids.tolist())
    assert ids.max(initial=0) < 300


def test_ids_are_llamas_then_the_extra_ones_then_the_reserved(crystal):
    ids = crystal.convert_tokens_to_ids
    assert [ids("<unk>"), ids("<s>"), ids("</s>"), ids("<|fim_prefix|>"), ids("<reserved_1>")] == [0, 1, 2, 300, 302]
    assert len(crystal) == 303


def test_a_saved_tokenizer_gives_the_same_ids(crystal, tmp_path):
    crystal.save_pretrained(tmp_path)
    text = "def f(x): return '</s>'  # é"
    assert encode(load_encoder(tmp_path), [text])[0].tolist() == encode(crystal.backend_tokenizer, [text])[0].tolist()


def test_encoding_leaves_the_tokenizer_as_it_was(crystal):
    encode(crystal.backend_tokenizer, ["</s>"])
    assert crystal("</s>")["input_ids"] == [2]


def test_too_little_text_for_the_vocabulary_is_refused():
    params = TokenizerParams(vocab_size=5000, sample_mb=1.0, extra_tokens=[], reserved=0)
    with pytest.raises(DataError, match=r"tokens, expected 5000; raise sample_mb"):
        train_tokenizer(["a short text"], params)
