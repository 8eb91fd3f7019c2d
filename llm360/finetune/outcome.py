"""From a base checkpoint to a finetuned suite of one checkpoint: AmberChat (SFT) and AmberSafe (SFT, then DPO)."""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm360.checkpoint as checkpoints
from llm360.checkpoint import TrainState
from llm360.environment import environment
from llm360.errors import ConfigError
from llm360.files import manifest_sha256, new_folder, verify, write_bytes, write_json, write_manifest
from llm360.finetune.dpo import dpo
from llm360.finetune.instructions import read_rows
from llm360.finetune.recipe import Base, DpoParams, Recipe, SftParams, SftRecipe
from llm360.finetune.rows import Row
from llm360.finetune.sft import encode_rows, held_out_loss, sft
from llm360.finetune.training import device

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

CKPT, CHUNK = "ckpt_000", "chunk_000.jsonl"
LIBRARIES = ("trl", "peft", "accelerate")
RENAMED = {"num_tokens": "tokens"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The base: its name, its folder, and its model and tokenizer, which finetuning changes."""

    base: Base
    folder: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finetuned model; logs hold (phase, row) per optimizer step, the last phase names the suite's phase."""

    model: PreTrainedModel
    logs: list[tuple[str, dict[str, Any]]]
    summary: dict[str, Any]


def chat(start: Start, instructions: Path, params: SftParams) -> Outcome:
    """Finetune on ``sft_train`` and measure the loss on ``sft_test`` before and after."""
    verify(instructions)
    train, test = (read_rows(instructions / f"sft_{s}.jsonl") for s in ("train", "test"))
    model, logs, summary = _sft(start, train, test, params.sft)
    return Outcome(model=model, logs=[("sft", row) for row in logs], summary={"sft": summary})


def safe(start: Start, instructions: Path, params: DpoParams) -> Outcome:
    """Finetune on the chosen answers of ``dpo_train``, then on the preferences against the outcome of the first step.

    The summary holds the loss on held-out chosen answers and the held-out rewards, each before and after.
    """
    verify(instructions)
    train, test = (read_rows(instructions / f"dpo_{s}.jsonl") for s in ("train", "test"))
    model, first, sft_summary = _sft(start, _chosen(train), _chosen(test), params.sft)
    reference = copy.deepcopy(model)
    model, dpo_summary, second = dpo(model, reference, start.tokenizer, train, test, params.dpo)
    logs = [("sft", row) for row in first] + [("dpo", row) for row in second]
    return Outcome(model=model, logs=logs, summary={"sft": sft_summary, "dpo": dpo_summary})


def _chosen(rows: Sequence[Row]) -> list[Row]:
    return [{"id": r["id"], "messages": [*r["prompt"], *r["chosen"]]} for r in rows]


def _sft(
    start: Start, train: Sequence[Row], test: Sequence[Row], recipe: SftRecipe
) -> tuple[PreTrainedModel, list[dict[str, Any]], dict[str, Any]]:
    counts = {n: encode_rows(start.tokenizer, r, recipe.max_length)[1] for n, r in (("train", train), ("test", test))}
    base = start.model.to(device())
    before = held_out_loss(base, start.tokenizer, test, recipe)
    model, logs = sft(base, start.tokenizer, train, recipe)
    after = held_out_loss(model, start.tokenizer, test, recipe)
    return model, logs, {"rows": counts, "before": {"loss": before}, "after": {"loss": after}}


def require_length(start: Start, *recipes: Recipe) -> None:
    """Raise ConfigError when a recipe's max_length is more than the base model's positions."""
    limit = start.model.config.max_position_embeddings
    for recipe in recipes:
        if recipe.max_length > limit:
            raise ConfigError(f"max_length: read {recipe.max_length}, expected at most the model's {limit} positions")


def write_suite(
    outcome: Outcome,
    *,
    suite: str,
    start: Start,
    instructions: Path,
    params: SftParams | DpoParams,
    checkpoint_folder: Path,
    metrics_folder: Path,
) -> str:
    """Write the metrics, then the checkpoint; return the sha256 of the checkpoint's manifest."""
    state = TrainState.read(start.folder)
    phase = outcome.logs[-1][0]
    lineage = {
        "suite": suite,
        "phase": phase,
        "ckpt": 0,
        "parent": manifest_sha256(start.folder),
        "base": dataclasses.asdict(start.base),
        "instructions": manifest_sha256(instructions),
    }
    with new_folder(metrics_folder) as partial:
        write_bytes(partial / CHUNK, "".join(_lines(outcome, suite, state)).encode())
        write_json(partial / "summary.json", {**lineage, **outcome.summary})
        write_manifest(partial, lineage)
    steps = len(outcome.logs), sum(name == phase for name, _ in outcome.logs)
    rng = checkpoints.rng_state()
    return checkpoints.save(
        checkpoint_folder / CKPT,
        model=outcome.model,
        tokenizer=start.tokenizer,
        optimizer=None,
        state=dataclasses.replace(state, step=steps[0], phase_step=steps[1], torch_rng=rng),
        fields={
            **lineage,
            "recipe": dataclasses.asdict(params),
            "environment": {**environment(optimizer="adamw"), **_libraries()},
        },
    )


def _lines(outcome: Outcome, suite: str, state: TrainState) -> list[str]:
    """``step`` counts over both phases, ``tokens`` those of this phase; tokens_seen stays the base's."""
    known = {"suite": suite, "chunk": 0, "tokens_seen": state.tokens_seen}
    rows = []
    for step, (phase, row) in enumerate(outcome.logs, start=1):
        named = {RENAMED.get(k, k): v for k, v in row.items()}
        rows.append({**named, **known, "phase": phase, "step": step, "phase_step": row["step"]})
    return [json.dumps(r, sort_keys=True, allow_nan=False) + "\n" for r in rows]


def _libraries() -> Mapping[str, str]:
    return {name: importlib.metadata.version(name) for name in LIBRARIES}
