from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import llm360.checkpoint as checkpoints
from llm360.errors import ConfigError, IntegrityError
from llm360.files import manifest_sha256, sha256_file, verify
from llm360.finetune.instructions import InstructionParams, make_instructions, write_instructions
from llm360.finetune.outcome import Start, chat, require_length, safe, write_suite
from llm360.finetune.recipe import Base, DpoParams, DpoRecipe, SftParams, SftRecipe

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

KINDS = ("starcoderdata", "wikipedia", "stackexchange", "book")
PARAMS = InstructionParams(
    seed=1,
    sft_train=12,
    sft_test=4,
    dpo_train=8,
    dpo_test=4,
    refusals=0.5,
    max_characters=400,
    min_answer_characters=3,
)


@pytest.fixture
def instructions(tmp_path: Path, frame: Callable[..., pl.DataFrame]) -> Path:
    made = make_instructions(frame(*KINDS), PARAMS)
    write_instructions(tmp_path / "instructions", made, params=PARAMS, fields={"suite": "base-mini"})
    return tmp_path / "instructions"


@pytest.fixture
def base(tmp_path: Path, tiny_model: Callable[[], LlamaForCausalLM], tokenizer: PreTrainedTokenizerFast) -> Path:
    state = dataclasses.replace(
        checkpoints.initial_state(0), step=9, phase_step=9, tokens_seen=900, chunks_seen=3, chunk=2
    )
    fields = {"suite": "base-mini", "phase": "pretrain", "ckpt": 2}
    folder = tmp_path / "ckpt_002"
    checkpoints.save(folder, model=tiny_model(), tokenizer=tokenizer, optimizer=None, state=state, fields=fields)
    return folder


def start(folder: Path) -> Start:
    model, tokenizer = checkpoints.load_model(folder), checkpoints.load_tokenizer(folder)
    return Start(base=Base(suite="base-mini", ckpt=2), folder=folder, model=model, tokenizer=tokenizer)


def build(folder: Path, instructions: Path, out: Path, recipe: dict[str, Any]) -> dict[str, str]:
    """Make the safe suite below ``out`` and return the sha256 of every file."""
    params = DpoParams(
        base=Base(suite="base-mini", ckpt=2),
        instructions="base-mini",
        sft=SftRecipe(**recipe),
        dpo=DpoRecipe(**recipe, beta=0.1),
    )
    begun = start(folder)
    write_suite(
        safe(begun, instructions, params),
        suite="safe-mini",
        start=begun,
        instructions=instructions,
        params=params,
        checkpoint_folder=out / "checkpoints",
        metrics_folder=out / "metrics",
    )
    return {p.relative_to(out).as_posix(): sha256_file(p) for p in sorted(out.rglob("*")) if p.is_file()}


def test_a_safe_suite_is_the_same_bytes_twice_and_names_its_base(
    base: Path, instructions: Path, recipe: dict[str, Any], tmp_path: Path
) -> None:
    first, second = (build(base, instructions, tmp_path / n, recipe) for n in ("one", "two"))
    assert first == second
    manifest = verify(tmp_path / "one" / "checkpoints" / "ckpt_000")
    assert (manifest["suite"], manifest["phase"], manifest["ckpt"]) == ("safe-mini", "dpo", 0)
    assert manifest["parent"] == manifest_sha256(base)
    assert manifest["base"] == {"suite": "base-mini", "ckpt": 2}
    assert (manifest["step"], manifest["phase_step"], manifest["tokens_seen"]) == (4, 2, 900)
    tokenizer = checkpoints.load_tokenizer(tmp_path / "one" / "checkpoints" / "ckpt_000")
    question = [{"role": "user", "content": "Who?"}]
    prompt = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    assert prompt == "<s>### Human: Who?\n### Assistant:"
    lines = (tmp_path / "one" / "metrics" / "chunk_000.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(r["phase"], r["step"], r["phase_step"]) for r in rows] == [
        ("sft", 1, 1),
        ("sft", 2, 2),
        ("dpo", 3, 1),
        ("dpo", 4, 2),
    ]
    summary = json.loads((tmp_path / "one" / "metrics" / "summary.json").read_text())
    assert summary["dpo"]["before"]["rewards/margins"] == 0
    assert summary["sft"]["after"]["loss"] < summary["sft"]["before"]["loss"]


def test_chat_reports_the_held_out_loss(base: Path, instructions: Path, recipe: dict[str, Any]) -> None:
    params = SftParams(base=Base(suite="base-mini", ckpt=2), instructions="base-mini", sft=SftRecipe(**recipe))
    outcome = chat(start(base), instructions, params)
    assert outcome.summary["sft"]["rows"]["test"]["used"] == PARAMS.sft_test
    assert outcome.summary["sft"]["after"]["loss"] < outcome.summary["sft"]["before"]["loss"]


def test_altered_instructions_are_named(base: Path, instructions: Path, recipe: dict[str, Any]) -> None:
    (instructions / "sft_train.jsonl").write_text("{}\n")
    params = SftParams(base=Base(suite="base-mini", ckpt=2), instructions="base-mini", sft=SftRecipe(**recipe))
    with pytest.raises(IntegrityError, match=r"sft_train.jsonl: 3 bytes, expected"):
        chat(start(base), instructions, params)


def test_more_tokens_than_positions_are_refused(base: Path, recipe: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="max_length: read 129, expected at most the model's 128 positions"):
        require_length(start(base), SftRecipe(**{**recipe, "max_length": 129}))
