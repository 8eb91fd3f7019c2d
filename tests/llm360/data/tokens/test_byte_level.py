from __future__ import annotations

import copy
import json

import pytest

from llm360.data.tokens.byte_level import alphabet, bytes_by_id, not_byte_level, not_plain, special_tokens


@pytest.fixture(scope="module")
def trained(tokenizer):
    return json.loads(tokenizer.backend_tokenizer.to_str())


@pytest.fixture
def spec(trained):
    return copy.deepcopy(trained)


def test_the_alphabet_is_that_of_the_library():
    from tokenizers import pre_tokenizers

    assert sorted(alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(alphabet().values()) == list(range(256))


@pytest.mark.parametrize("text", ["\0\t\n\r\x7f", " !~", "\xa0\xad\xff", "é中👩", "".join(map(chr, range(0x100)))])
def test_a_text_is_spelled_in_the_alphabet_as_the_library_does(text):
    from tokenizers import pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((spelled, _),) = level.pre_tokenize_str(text)
    assert bytes(alphabet()[c] for c in spelled) == text.encode()


def test_every_id_but_the_special_ones_has_its_bytes(spec, tokenizer):
    found = bytes_by_id(spec)
    assert sorted([*found, *special_tokens(spec).values()]) == list(range(len(tokenizer)))
    assert all(tokenizer.decode([i]) == data.decode() for i, data in found.items() if data.isascii())


def test_what_the_project_trains_is_plain(spec):
    assert not_byte_level(spec) is None
    assert not_plain(spec) is None


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("model.type", "Unigram", "model.type is 'Unigram'"),
        ("model.byte_fallback", True, "model.byte_fallback is True"),
        ("model.continuing_subword_prefix", "##", "model.continuing_subword_prefix is '##'"),
        ("model.end_of_word_suffix", "</w>", "model.end_of_word_suffix is '</w>'"),
        ("normalizer", {"type": "NFC"}, "normalizer is 'NFC'"),
        ("pre_tokenizer", None, "pre_tokenizer.type is None"),
        ("pre_tokenizer.type", "Metaspace", "pre_tokenizer.type is 'Metaspace'"),
        ("pre_tokenizer.add_prefix_space", True, "pre_tokenizer.add_prefix_space is True"),
    ],
)
def test_what_makes_bytes_untrue_is_named(spec, path, value, reason):
    *parents, key = path.split(".")
    (spec[parents[0]] if parents else spec)[key] = value
    assert not_byte_level(spec) == reason


def test_an_added_token_that_is_found_in_text_is_named(spec):
    spec["added_tokens"].append({"id": 400, "content": "    ", "special": False})
    assert "added token '    ' is not special" in not_byte_level(spec)


def test_a_vocabulary_of_other_characters_is_named(spec):
    spec["model"]["vocab"]["▁the"] = 400
    assert not_byte_level(spec) == "token '▁the' has characters that stand for no byte"


def test_a_byte_without_token_is_named(spec):
    del spec["model"]["vocab"]["a"]
    assert not_byte_level(spec) == "no token for byte 0x61"


def test_a_special_token_that_is_a_byte_is_named(spec):
    spec["added_tokens"].append({"id": spec["model"]["vocab"]["!"], "content": "!", "special": True})
    assert not_byte_level(spec) == "no token for byte 0x21"


def test_an_id_of_two_tokens_is_named(spec):
    spec["model"]["vocab"]["b"] = spec["model"]["vocab"]["a"]
    assert not_byte_level(spec) == "two tokens share an id"


def test_another_split_and_whole_words_first_are_named(spec):
    spec["pre_tokenizer"]["use_regex"] = False
    assert not_plain(spec) == "pre_tokenizer.use_regex is False"
    spec["pre_tokenizer"]["use_regex"], spec["model"]["ignore_merges"] = True, True
    assert not_plain(spec) == "model.ignore_merges is True"


def test_merges_out_of_the_order_of_ids_are_named(spec):
    merges = spec["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    assert "merges are not in the order of their ids" in not_plain(spec)


def test_a_token_that_no_merge_makes_is_named(spec):
    spec["model"]["merges"].pop()
    assert not_plain(spec) == "id 383 is made by no merge"


def test_a_special_token_that_merges_make_is_named(spec):
    last = "".join(spec["model"]["merges"][-1])
    spec["added_tokens"].append({"id": spec["model"]["vocab"][last], "content": last, "special": True})
    assert not_plain(spec) == "id 383 is a special token and made by a merge"


def test_merges_written_as_strings_are_read_as_well(spec):
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    assert not_plain(spec) is None
