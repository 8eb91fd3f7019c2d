from __future__ import annotations

import pytest

from llm360.data.tokens.tokenizer import TokenizerParams, load_tokenizer, sample_texts, train_tokenizer
from llm360.errors import ConfigError, DataError


def params(**changed):
    given = {"kinds": ["book"], "vocab_size": 300, "sample_mb": 1.0, "extra_tokens": ["<|fim_prefix|>"], "reserved": 2}
    return TokenizerParams(**{**given, **changed})


@pytest.fixture(scope="module")
def crystal(documents):
    return train_tokenizer(documents["arxiv"]["text"].to_list(), params())


def test_ids_are_llamas_then_the_extra_ones_then_the_reserved(crystal):
    ids = crystal.convert_tokens_to_ids
    assert [ids("<unk>"), ids("<s>"), ids("</s>"), ids("<|fim_prefix|>"), ids("<reserved_1>")] == [0, 1, 2, 300, 302]
    assert len(crystal) == 303


def test_a_saved_tokenizer_gives_the_same_ids(crystal, tmp_path):
    crystal.save_pretrained(tmp_path)
    text = "def f(x): return 'é'"
    assert load_tokenizer(tmp_path)(text)["input_ids"] == crystal(text)["input_ids"]


def test_too_little_text_for_the_vocabulary_is_refused():
    with pytest.raises(DataError, match=r"tokens, expected 5000; raise sample_mb"):
        train_tokenizer(["a short text"], params(vocab_size=5000))


@pytest.mark.parametrize("extra", [["!"], ["<s>"], ["<|x|>", "<|x|>"], ["<reserved_0>"]])
def test_an_extra_token_that_is_there_already_is_refused(documents, extra):
    with pytest.raises(ConfigError, match=r"extra_tokens: read .* twice there or a token that text has"):
        train_tokenizer(documents["arxiv"]["text"].to_list(), params(extra_tokens=extra))


def test_a_vocabulary_below_the_bytes_is_refused():
    with pytest.raises(ConfigError, match="vocab_size 258, reserved 2: expected at least the 256 bytes"):
        params(vocab_size=258)


def test_a_sample_is_the_first_documents_of_each_kind_up_to_its_share():
    kinds = [["a" * 400] * 9, ["é" * 300] * 9, ["c"]]
    assert list(sample_texts(kinds, megabytes=0.003)) == ["a" * 400] * 3 + ["é" * 300] * 2 + ["c"]


def test_a_sample_reads_no_further_than_its_share():
    def endless():
        while True:
            yield "text"

    assert len(list(sample_texts([endless(), endless()], megabytes=0.0001))) == 26
