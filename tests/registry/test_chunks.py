"""The text of a row, rebuilt from its tokens, against the documents that the chunks were made of."""

from __future__ import annotations

import json
import shutil

import pytest

import registry
from llm360.data.mixture import ChunkParams, Fim, Ingredient
from llm360.data.tokens.encoder import load_encoder
from llm360.errors import FingerprintMismatch, NotFound, StoreUnavailable
from llm360.files import manifest_sha256, read_manifest, write_json, write_manifest
from llm360.train.ledger import Ledger
from registry import Workspace, use_store

SUITE = "hand-made"
FIM = Fim(rate=0.5, spm_rate=0.5, prefix="<|fim_prefix|>", middle="<|fim_middle|>", suffix="<|fim_suffix|>")
PARAMS = ChunkParams(
    suite=SUITE,
    phase="pretrain",
    folder=SUITE,
    tokenizer=SUITE,
    sequence_length=512,
    first_chunk=0,
    chunks=2,
    rows_per_chunk=12,
    validation_rows=1,
    seed=1,
    mixture={
        "book": Ingredient(weight=1.0, part="all", epochs=1),
        "c4": Ingredient(weight=2.0, part="all", epochs=1, fim=FIM),
    },
)


@pytest.fixture(scope="module")
def root(tmp_path_factory, make_chunks, tokenizer_folder):
    """A workspace with the chunks of a suite and the tokenizer that made them."""
    root = tmp_path_factory.mktemp("workspace")
    tokenizer = root / "artifacts/tokenizers" / SUITE
    shutil.copytree(tokenizer_folder, tokenizer)
    write_manifest(tokenizer, {"suite": SUITE})
    chunks = make_chunks(root / "artifacts/chunks" / SUITE, PARAMS, tokenizer=tokenizer)
    write_manifest(chunks.folder, chunks.manifest | {"tokenizer_sha256": manifest_sha256(tokenizer)})
    index = {"format": "llm360-index/2", "suite": SUITE, "base": None, "branch": None, "checkpoints": []}
    write_json(
        root / f"artifacts/index/{SUITE}.json", index | {"phases": [{"name": "pretrain", "first": 0, "last": 1}]}
    )
    started = {"event": "chunk_started", "chunk": 0, "step": 0, "batch_size": 5, "sha256": chunks.entry(0).sha256}
    started |= {"turn": "first"}
    done = {"ckpt": 0, "step": 2, "steps": 2, "rows_unused": 2, "tokens_seen": 2 * 5 * 512}
    Ledger(root / "artifacts/ledgers" / SUITE / "ledger.jsonl").record(
        {"event": "phase_started", "phase": "pretrain", "seed": 3},
        started,
        {"event": "chunk_finished", "chunk": 0, **done},
    )
    return root


@pytest.fixture
def chunks(root):
    with use_store(Workspace(root)):
        yield [registry.load_chunk(SUITE, chunk=i) for i in range(2)]


def test_every_row_is_the_bytes_of_its_documents(chunks, documents):
    texts = {i: text.encode() for kind in PARAMS.mixture for i, text in documents[kind].select("id", "text").rows()}
    changed = 0
    for chunk in chunks:
        for row, spans in enumerate(chunk.provenance["spans"].to_list()):
            excerpts = chunk.documents(row)
            assert [e.document for e in excerpts] == [s["document"] for s in spans]
            for excerpt, span in zip(excerpts, spans, strict=True):
                changed += span["byte_start"] is None
                if span["byte_start"] is not None:
                    assert excerpt.data == texts[excerpt.document][span["byte_start"] : span["byte_end"]]
                    assert not excerpt.ends or span["byte_end"] == len(texts[excerpt.document])
    assert changed  # fill-in-the-middle rearranged some; see the next test


def test_text_shows_where_a_document_ends(chunks):
    for row in range(12):
        excerpts = chunks[0].documents(row)
        assert chunks[0].text(row) == "".join(e.text for e in excerpts)
        assert [e.text.endswith("</s>") for e in excerpts] == [e.ends for e in excerpts]
        assert [e.ends for e in excerpts[:-1]] == [True] * (len(excerpts) - 1)
        ends = int((chunks[0].tokens[row] == 2).sum())
        assert sum(e.ends for e in excerpts) == ends


def test_the_command_line_shows_a_row_s_text_documents_and_steps(chunks, run):
    row = int(registry.data_at(SUITE, step=2).rows[0])
    code, out, err = run("data", SUITE, "--chunk", "0", "--row", str(row))
    assert (code, out) == (0, chunks[0].text(row) + "\n")
    assert f"chunk 0, row {row}, kind" in err
    assert "steps [2]" in err
    assert f"document {chunks[0].documents(row)[0].document}, source stdlib, origin" in err
    found = json.loads(run("data", SUITE, "--chunk", "0", "--row", str(row), "--json")[1])
    assert (found["steps"], found["text"]) == ([2], chunks[0].text(row))
    assert [d["document"] for d in found["documents"]] == [e.document for e in chunks[0].documents(row)]


def test_a_row_whose_middle_was_filled_in_says_so_and_shows_the_marks(root, chunks):
    encoder, marked = load_encoder(root / "artifacts/tokenizers" / SUITE), 0
    marks = {encoder.token_id(name) for name in FIM.tokens}
    for chunk in chunks:
        for row, tokens in enumerate(chunk.tokens):
            excerpts = chunk.documents(row)
            names = sum(chunk.text(row).count(name) for name in FIM.tokens)
            assert names == sum(int(t) in marks for t in tokens)
            assert not names or any(e.rearranged for e in excerpts)
            marked += names
    assert marked


def test_a_character_that_the_row_cuts_is_kept_in_the_bytes(root):
    from registry.chunks import _excerpt

    encoder = load_encoder(root / "artifacts/tokenizers" / SUITE)
    (ids,) = encoder.encode(["né"])
    cut = next(n for n in range(len(ids)) if encoder.decode_bytes(ids[:n]) == b"n\xc3")
    span = {"document": "d", "start": 0, "end": cut, "byte_start": 0}
    excerpt = _excerpt(encoder, ids, span)
    assert (excerpt.text, excerpt.data, excerpt.ends) == ("n\ufffd", b"n\xc3", False)


def test_a_row_that_is_not_there_says_which_are(chunks):
    for row in (12, -1, 1.0):
        with pytest.raises(NotFound, match="hand-made/chunk-0 has rows 0 to 11, read row"):
            chunks[0].text(row)


def test_text_needs_the_tokenizer_that_made_the_chunk(root, tmp_path):
    shutil.copytree(root, tmp_path / "clone")
    tokenizer = tmp_path / "clone/artifacts/tokenizers" / SUITE
    with use_store(Workspace(tmp_path / "clone")):
        chunk = registry.load_chunk(SUITE, chunk=0)
    write_manifest(tokenizer, read_manifest(tokenizer) | {"suite": "another"})
    with pytest.raises(FingerprintMismatch, match=r"hand-made: sha256 .*, but the chunks of hand-made were made with"):
        chunk.text(0)
    shutil.rmtree(tokenizer)
    with pytest.raises(StoreUnavailable, match=r"its text needs the tokenizer .*dvc pull artifacts/tokenizers/hand-ma"):
        chunk.text(0)
