from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.data.tokens import proof as proof_module
from llm360.data.tokens.encoder import load_encoder, prove_encoder
from llm360.data.tokens.engines import versions
from llm360.data.tokens.tokenizer import TokenizerParams, train_tokenizer
from llm360.errors import ConfigError, DataError, IntegrityError

SPECIAL = ["<s>", "</s>", "<unk>", "<|fim_prefix|>", "<reserved_0>", "<|endoftext|>", "\0unused\0"]
PIECES = [*SPECIAL, "'ll", "'S", "    ", "\r\n", "中文", "👩‍👧", "e\u0301", "1234", "return self.", "\u00a0", "\x85"]
texts = st.lists(st.text() | st.sampled_from(PIECES)).map("".join)


@pytest.fixture(autouse=True, scope="module")
def _quick():
    """Prove on a part of Unicode; the whole is the matter of test_proof."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof_module, "CODE_POINTS", (range(0x400),))
        yield


@pytest.fixture(scope="module")
def folder(documents, tmp_path_factory):
    params = TokenizerParams(kinds=["book"], vocab_size=600, sample_mb=1.0, extra_tokens=["<|fim_prefix|>"], reserved=2)
    path = tmp_path_factory.mktemp("encoder")
    train_tokenizer([t for frame in documents.values() for t in frame["text"]], params).save_pretrained(path)
    prove_encoder(path, documents=documents["book"]["text"].to_list())
    return path


@pytest.fixture(scope="module")
def fast(folder):
    return load_encoder(folder)


@pytest.fixture(scope="module")
def slow(fast):
    return dataclasses.replace(fast, _fast=None)


@pytest.fixture(scope="module", params=["fast", "slow"])
def encoder(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def copy_of(folder, tmp_path):
    """Returns a folder with a tokenizer.json like the trained one but for a change, and with its old proof."""

    def build(change):
        spec = json.loads((folder / "tokenizer.json").read_text())
        change(spec)
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
        (tmp_path / "encoder.json").write_bytes((folder / "encoder.json").read_bytes())
        return tmp_path

    return build


def test_the_trained_tokenizer_is_encoded_by_tiktoken(fast, documents):
    assert fast.name == f"tiktoken {versions()['tiktoken']}"
    assert (fast.vocab_size, fast.eos) == (603, 2)


@given(texts)
@settings(max_examples=300)
def test_both_libraries_give_the_same_ids(fast, slow, text):
    assert fast.encode([text])[0].tolist() == slow.encode([text])[0].tolist()


@given(texts)
@settings(max_examples=200)
def test_every_text_comes_back_and_no_special_token_comes_in(encoder, text):
    (ids,) = encoder.encode([text])
    assert encoder.decode_bytes(ids) == text.encode()
    assert not set(encoder.special_tokens.values()) & set(ids.tolist())


@given(st.lists(texts, max_size=3))
def test_the_lengths_of_tokens_are_those_of_their_bytes(encoder, some):
    for text, ids in zip(some, encoder.encode(some), strict=True):
        assert ids.dtype == np.uint32
        assert encoder.token_bytes[ids].sum() == len(text.encode())


def test_documents_give_the_ids_of_the_tokenizer_file_itself(fast, folder, documents):
    from tokenizers import Tokenizer

    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in documents["c4"]["text"]:
        assert fast.encode([text])[0].tolist() == reference.encode(text, add_special_tokens=False).ids


def test_special_tokens_stand_for_no_bytes(encoder):
    special = list(encoder.special_tokens.values())
    assert encoder.token_bytes[special].tolist() == [0] * len(special)
    assert encoder.decode_bytes([1, *encoder.encode(["</s>"])[0], 2]) == b"</s>"


def test_an_id_of_another_tokenizer_is_refused(encoder):
    with pytest.raises(DataError, match="id 603: expected 0 to 602"):
        encoder.decode_bytes([5, 603])


def test_a_special_token_is_found_by_name_and_others_are_not(encoder):
    assert encoder.token_id("<|fim_prefix|>") == 600
    with pytest.raises(ConfigError, match=r"'<\|fim_prefx\|>' is no special token .* did you mean '<\|fim_prefix\|>'"):
        encoder.token_id("<|fim_prefx|>")
    with pytest.raises(ConfigError, match="'the' is no special token"):
        encoder.token_id("the")


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "=\n" * 100_000, "'" * 100_000, "é" * 100_000])
def test_long_words_have_the_same_ids(fast, slow, text):
    assert np.array_equal(fast.encode([text])[0], slow.encode([text])[0])


def test_a_run_of_blanks_that_tiktoken_cannot_split_is_left_to_the_reference(fast):
    text = "x" + " " * 1_200_000 + "x"
    with pytest.raises(ValueError, match="stack"):
        fast._fast([text])
    assert fast.decode_bytes(fast.encode([text])[0]) == text.encode()


def test_a_lone_surrogate_is_refused(encoder):
    with pytest.raises(DataError, match=r"lone surrogate \('\\ud800' at character 2\)"):
        encoder.encode(["ok", "ab\ud800"])


def test_what_cut_or_padded_texts_in_the_file_does_not(copy_of):
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    folder = copy_of(lambda spec: spec.update(truncation=cut))
    for encoder in (load_encoder(folder), dataclasses.replace(load_encoder(folder), _fast=None)):
        assert (
            encoder.decode_bytes(encoder.encode(["one two three four five six"])[0]) == b"one two three four five six"
        )


def test_a_proof_of_this_file_and_these_libraries_is_not_made_again(folder, monkeypatch):
    monkeypatch.setattr("llm360.data.tokens.encoder.prove", None)
    assert load_encoder(folder).name.startswith("tiktoken")


@pytest.mark.parametrize("version", ["tiktoken", "tokenizers"])
def test_under_another_version_it_is_proven_again(folder, monkeypatch, version):
    made = []
    prove = proof_module.prove
    monkeypatch.setattr(
        "llm360.data.tokens.encoder.prove", lambda *a, **k: made.append(k["documents"]) or prove(*a, **k)
    )
    now = {**versions(), version: "999"}
    monkeypatch.setattr(proof_module, "versions", lambda: now)
    assert load_encoder(folder).name == f"tiktoken {now['tiktoken']}"
    assert made == [()]


def test_another_tokenizer_beside_an_old_proof_is_proven_again(copy_of, capsys):
    encoder = load_encoder(copy_of(lambda spec: spec["pre_tokenizer"].update(use_regex=False)))
    assert encoder.name == f"tokenizers {versions()['tokenizers']}"
    assert "not tiktoken: pre_tokenizer.use_regex is False" in capsys.readouterr().err
    assert encoder.decode_bytes(encoder.encode(["a  b</s>"])[0]) == b"a  b</s>"


def test_without_tiktoken_the_ids_are_the_same(folder, fast, monkeypatch, capsys):
    monkeypatch.setattr(proof_module, "versions", lambda: {**versions(), "tiktoken": None})
    encoder = load_encoder(folder)
    assert "tiktoken is not installed" in capsys.readouterr().err
    assert np.array_equal(encoder.encode(["it's </s>"])[0], fast.encode(["it's </s>"])[0])


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(IntegrityError, match=r"tokenizer.json: missing, expected a tokenizer there"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"model": {}}', b"\xff"])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, data):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(IntegrityError, match=r"tokenizer.json: not a tokenizer"):
        load_encoder(tmp_path)


def test_a_tokenizer_that_draws_lots_is_refused(copy_of):
    with pytest.raises(ConfigError, match=r"dropout 0.1 makes ids a matter of chance"):
        load_encoder(copy_of(lambda spec: spec["model"].update(dropout=0.1)))


def test_a_tokenizer_without_end_token_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match="no special token '</s>'"):
        load_encoder(tmp_path)


def llama_like():
    from tokenizers import Tokenizer, decoders, models, normalizers

    names = ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], "▁", "a", "b", "ab", "▁ab"]
    model = models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=[("a", "b"), ("▁", "ab")],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def test_a_llama_like_tokenizer_works_by_its_own_library(tmp_path, capsys):
    llama_like().save(str(tmp_path / "tokenizer.json"))
    encoder = load_encoder(tmp_path)
    assert encoder.name.startswith("tokenizers ")
    assert "not tiktoken: model.byte_fallback is True" in capsys.readouterr().err
    assert encoder.token_bytes is None
    for text in ["ab ab é", "</s>", "a</s>b <s>"]:
        (ids,) = encoder.encode([text])
        assert encoder.decode_bytes(ids) == text.encode()
        assert not {0, 1, 2} & set(ids.tolist())


def test_a_model_whose_text_can_become_a_special_token_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("a", -1.0)], unk_id=0))
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = load_encoder(tmp_path)
    assert encoder.encode(["aza"])[0].tolist() == [2, 0, 2]
    with pytest.raises(DataError, match="text 'a</s>' gave the special token '</s>'"):
        encoder.encode(["a</s>"])
