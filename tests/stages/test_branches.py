"""`branch_from: SUITE@CKPT`: the checkpoint's folder and name, or what is wrong with it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import ConfigError
from stages.branches import resolved
from stages.compose import compose


def _chunks(first: int, count: int, tokenizer: str = "base") -> dict:
    return {"first_chunk": first, "chunks": count, "tokenizer": tokenizer}


CHUNKS = {
    "amber-mini": _chunks(0, 360),
    "crystal-one": _chunks(0, 36),
    "crystal-two": _chunks(36, 96),
    "other": _chunks(181, 20),
}
PRETRAIN = {
    "amber-mini": {"suite": "amber-mini", "folder": "amber-mini", "start": "init/amber-mini", "seed": 1},
    "crystal-one": {"suite": "crystal-mini", "folder": "crystal-mini/phase1", "start": "init/crystal-mini"},
    "crystal-two": {"suite": "crystal-mini", "folder": "crystal-mini/phase2", "start": "checkpoints/x"},
}


def _branch(text: object, first: int, tokenizer: str = "base", **more: object) -> dict:
    section = {"suite": "other", "folder": "other", "branch_from": text, "seed": 2, **more}
    chunks = CHUNKS | {"other": _chunks(first, 20, tokenizer)}
    return resolved(PRETRAIN | {"other": section}, chunks)["other"]


def test_a_branch_starts_at_the_others_checkpoint_and_keeps_its_name():
    found = _branch("amber-mini@180", 181)
    assert list(found.items()) == [
        ("suite", "other"), ("folder", "other"), ("start", "checkpoints/amber-mini/ckpt_180"),
        ("branch", "amber-mini/ckpt-180"), ("seed", 2),
    ]  # fmt: skip


@given(st.integers(0, 131))
def test_the_phase_is_the_one_whose_numbers_hold_the_checkpoint(ckpt):
    phase = "phase1" if ckpt < 36 else "phase2"
    assert _branch(f"crystal-mini@{ckpt}", ckpt + 1)["start"] == f"checkpoints/crystal-mini/{phase}/ckpt_{ckpt:03d}"


def test_a_branch_of_a_branch():
    sections = PRETRAIN | {"other": {"suite": "other", "folder": "other", "branch_from": "amber-mini@180"}}
    sections |= {"third": {"suite": "third", "folder": "third", "branch_from": "other@190"}}
    found = resolved(sections, CHUNKS | {"third": _chunks(191, 5)})
    assert (found["third"]["start"], found["third"]["branch"]) == ("checkpoints/other/ckpt_190", "other/ckpt-190")


def test_a_section_that_branches_nowhere_says_so_and_keeps_its_start():
    section = PRETRAIN["amber-mini"]
    assert resolved({"amber-mini": section}, CHUNKS) == {"amber-mini": section | {"branch": None}}
    assert resolved({"amber-mini": section | {"branch_from": None}}, CHUNKS)["amber-mini"]["branch"] is None


@pytest.mark.parametrize(
    ("text", "first", "more", "message"),
    [
        ("amber-mni@180", 181, {}, "no suite 'amber-mni'; did you mean 'amber-mini'"),
        ("amber-mini@400", 401, {}, "read checkpoint 400 of amber-mini, expected one that it saves: 0 to 359"),
        ("crystal-mini@132", 133, {}, "expected one that it saves: 0 to 131"),
        ("amber-mini@180", 180, {}, "chunks.other.first_chunk: read 180, expected 181: .* go on from checkpoint 180"),
        ("amber-mini@180", 181, {"start": "init/x"}, "read start 'init/x' and branch_from 'amber-mini@180', expec"),
        ("amber-mini@180", 181, {"tokenizer": "mine"}, "chunks.other.tokenizer: read 'mine', expected 'base'"),
        ("other@185", 186, {}, "other cannot branch from itself"),
        ("amber-mini/ckpt-180", 181, {}, "expected SUITE@CKPT, for example amber-mini@180"),
        ("amber-mini@0180", 181, {}, "expected SUITE@CKPT"),
        (180, 181, {}, "read 180, expected SUITE@CKPT"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_branch_is_said(text, first, more, message):
    with pytest.raises(ConfigError, match=f"conf/: .*{message}"):
        _branch(text, first, **more)


def test_a_branch_without_chunks_is_refused():
    sections = PRETRAIN | {"third": {"suite": "third", "folder": "third", "branch_from": "amber-mini@1"}}
    with pytest.raises(ConfigError, match=re.escape("there is no chunks.third")):
        resolved(sections, CHUNKS)


def test_the_template_of_a_branch_needs_no_model_and_trains_on_the_bases_tokenizer():
    params = compose(["scale=template_branch"])
    branch, chunks = params["pretrain"]["mine-code"], params["chunks"]["mine-code"]
    assert (branch["start"], branch["branch"]) == ("checkpoints/mine/ckpt_002", "mine/ckpt-2")
    assert set(params["models"]) == {"mine"}
    base = params["chunks"]["mine"]
    assert all(chunks[key] == base[key] for key in ("tokenizer", "sequence_length", "seed", "validation_rows"))
    assert chunks["phase"] != base["phase"]
    assert params["suites"] == ["mine", "mine-code"]
