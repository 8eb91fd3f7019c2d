from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from llm360.errors import ConfigError, DataError
from llm360.files import verify
from llm360.finetune.instructions import (
    InstructionParams,
    Instructions,
    make_instructions,
    read_rows,
    write_instructions,
)
from llm360.finetune.preferences import ACTS
from llm360.finetune.rows import answers

KINDS = ("starcoderdata", "wikipedia", "stackexchange", "book")
Frame = Callable[..., pl.DataFrame]
PARAMS = InstructionParams(
    seed=1,
    sft_train=40,
    sft_test=8,
    dpo_train=20,
    dpo_test=6,
    refusals=0.5,
    max_characters=500,
    min_answer_characters=3,
)


@pytest.fixture(scope="module")
def made(frame: Frame) -> Instructions:
    return make_instructions(frame(*KINDS), PARAMS)


def test_each_set_has_the_rows_asked_for_from_several_templates(made: Instructions) -> None:
    assert {n: len(r) for n, r in made.rows.items()} == {n: getattr(PARAMS, n) for n in made.rows}
    assert len({r["template"] for r in made.rows["sft_train"]}) >= 7
    assert sum(r["template"] == "refusal" for r in made.rows["dpo_train"]) == 10


def test_train_and_test_share_no_document_and_no_prompt(made: Instructions) -> None:
    def seen(split: str) -> tuple[set[str], set[str]]:
        sft, dpo = made.rows[f"sft_{split}"], made.rows[f"dpo_{split}"]
        prompts = [r["messages"][0]["content"] for r in sft] + [r["prompt"][0]["content"] for r in dpo]
        assert len(prompts) == len(set(prompts))
        return {r["document"] for r in sft + dpo}, set(prompts)

    for train, test in zip(seen("train"), seen("test"), strict=True):
        assert not train & test


@pytest.mark.parametrize("kinds", [KINDS, *((kind,) for kind in KINDS)], ids="+".join)
def test_no_answer_and_no_unsafe_request_of_test_is_in_train(frame: Frame, kinds: tuple[str, ...]) -> None:
    rows = make_instructions(frame(*kinds, documents=80), PARAMS).rows
    train, test = ([*rows[f"sft_{split}"], *rows[f"dpo_{split}"]] for split in ("train", "test"))
    assert not {a for row in test for a in answers(row)} & {a for row in train for a in answers(row)}
    asked = [{act for act, _, _ in ACTS if act in json.dumps(part)} for part in (train, test)]
    assert all(asked)
    assert not asked[0] & asked[1]


def test_test_rows_that_train_gives_away_are_left_out_and_counted(frame: Frame) -> None:
    documents = frame("stackexchange")
    same = documents.with_columns(documents["text"].str.replace(r"The item number \d+ serves.*", "It has no purpose."))
    made = make_instructions(same, PARAMS)
    assert made.left_out["test answer occurs in train"] > 0
    assert "It has no purpose." in json.dumps(made.rows["sft_train"])
    assert '"It has no purpose."' not in json.dumps([made.rows["sft_test"], made.rows["dpo_test"]])


def test_each_row_names_its_document_and_licence(made: Instructions) -> None:
    for rows in made.rows.values():
        assert len({r["id"] for r in rows}) == len(rows)
        assert all(r["licence"] == f"L-{r['document'].split('/')[0]}" for r in rows)


def test_rows_depend_on_the_seed_and_not_on_the_order_of_documents(frame: Frame, made: Instructions) -> None:
    documents = frame(*KINDS)
    assert make_instructions(documents.reverse(), PARAMS) == made
    assert make_instructions(documents, dataclasses.replace(PARAMS, seed=2)) != made


@pytest.mark.parametrize("kind", KINDS)
def test_any_one_kind_of_text_is_enough(frame: Frame, kind: str) -> None:
    rows = make_instructions(frame(kind, documents=80), dataclasses.replace(PARAMS, sft_train=10)).rows
    assert all(rows.values())


def test_text_that_reads_as_structure_is_left_out_and_counted(frame: Frame) -> None:
    documents = frame("book", "wikipedia")
    smuggled = documents.with_columns(documents["text"].str.replace("nobody", "### Human: </s>"))
    made = make_instructions(smuggled, PARAMS)
    assert made.left_out["holds a role marker or special token"] > 0
    assert not any(m in json.dumps(made.rows) for m in ("### Human:", "</s>"))


def test_no_rows_is_an_error_that_counts_why(frame: Frame) -> None:
    with pytest.raises(DataError, match=r"sft_train: no row from 40 documents \(\{'too long'.*add sources"):
        make_instructions(frame("book"), dataclasses.replace(PARAMS, max_characters=10))


def test_equal_rows_are_equal_bytes_and_the_manifest_counts_them(made: Instructions, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_instructions(tmp_path / name, made, params=PARAMS, fields={"suite": "amber-mini"})
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)
    manifest = verify(tmp_path / "one")
    assert sum(manifest["rows"]["dpo_train"]["by_fault"].values()) == manifest["rows"]["dpo_train"]["asked"] == 20
    assert read_rows(tmp_path / "one" / "sft_test.jsonl") == made.rows["sft_test"]


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id"\n')
    with pytest.raises(DataError, match=r"rows.jsonl, line 2: not JSON"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(("field", "value"), [("refusals", 1.5), ("sft_test", 0)])
def test_params_that_cannot_be_meant_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field}: read {value}"):
        dataclasses.replace(PARAMS, **{field: value})  # type: ignore[arg-type]
