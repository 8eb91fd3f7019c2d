from __future__ import annotations

import json

import pytest
import tiktoken_ext.openai_public as public

from llm360.data.tokens import proof as proof_module
from llm360.data.tokens.encoder import load_encoder, prove_encoder
from llm360.data.tokens.proof import written_proof
from llm360.files import sha256_file


@pytest.fixture
def folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_what_was_compared_is_written(folder, tokenizer):
    texts = ["a text", "é"]
    proof = prove_encoder(folder, documents=texts)
    assert (proof.library, proof.reason, proof.texts, proof.bytes) == ("tiktoken", None, 2, 8)
    assert proof.tokens == len(tokenizer) - len(tokenizer.all_special_ids)
    assert proof.code_points > 180_000
    assert written_proof(folder, sha256_file(folder / "tokenizer.json")) == proof


def test_a_proof_of_other_bytes_is_none(folder):
    prove_encoder(folder, documents=())
    assert written_proof(folder, "0" * 64) is None


def test_a_record_of_another_shape_is_none(folder):
    (folder / "encoder.json").write_text("{}")
    assert written_proof(folder, sha256_file(folder / "tokenizer.json")) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}--\u0561]++| ?\p{N}++| ?(?:[^\s\p{L}\p{N}]|\u0561)++|\s++$|\s+(?!\S)|\s",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\d++| ?[^\s\p{L}\d]++|\s++$|\s+(?!\S)|\s",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^ \r\n\p{L}\p{N}]++|[ \r\n]++$|[ \r\n]+(?![^ \r\n])|[ \r\n]",
    ],
    ids=["a letter less", "fewer numbers", "fewer blanks"],
)
def test_another_table_of_unicode_is_found(folder, monkeypatch, capsys, pattern):
    monkeypatch.setattr(public, "r50k_pat_str", pattern)
    proof = prove_encoder(folder, documents=())
    assert proof.library == "tokenizers"
    assert proof.reason.startswith("it differs on ")
    assert proof.code_points > 0
    assert proof.reason in capsys.readouterr().err
    assert load_encoder(folder).name.startswith("tokenizers ")


@pytest.mark.parametrize(
    "pattern",
    [
        r"'(?:[SDMTsdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+",
        r"'(?:[sdmt]|ll|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        r"'(?:[sdmt]|ll|ve|re)|\s?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    ],
    ids=[
        "upper case contractions",
        "digits by three",
        "blanks in one",
        "a contraction less",
        "any blank before a word",
    ],
)
def test_another_split_is_found_even_where_this_vocabulary_hides_it(folder, monkeypatch, pattern):
    monkeypatch.setattr(proof_module, "CODE_POINTS", (range(0x80),))
    monkeypatch.setattr(public, "r50k_pat_str", pattern)
    assert prove_encoder(folder, documents=()).reason.startswith("it differs on ")


def test_a_difference_in_the_documents_alone_names_the_text(folder, monkeypatch):
    monkeypatch.setattr(proof_module, "CODE_POINTS", (range(0x80),))
    monkeypatch.setattr(public, "r50k_pat_str", f"qqse|{public.r50k_pat_str}")
    assert prove_encoder(folder, documents=["fine"]).library == "tiktoken"
    proof = prove_encoder(folder, documents=["fine", "qqself"])
    assert proof.reason == "it differs on 'qqself' (from token 2 on)"
    assert proof.texts == 2


def test_a_token_that_its_own_bytes_do_not_become_is_found(folder):
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text())
    byte = {c: i for c, i in spec["model"]["vocab"].items() if len(c) == 1}
    spec["model"]["vocab"] = {**byte, "QX": 900, "XZ": 901, "QXZ": 902}
    spec["model"]["merges"] = [["Q", "X"], ["X", "Z"], ["Q", "XZ"]]  # QXZ becomes QX, Z: tiktoken would join them
    path.write_text(json.dumps(spec))
    assert prove_encoder(folder, documents=()).reason == "token 'QXZ' is not what its bytes become"
