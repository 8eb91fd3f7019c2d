"""Supervised finetuning with trl's SFTTrainer, on the assistant's tokens only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm360.finetune.chat import Encoded, chat_tokenizer, encode
from llm360.finetune.measure import answer_loss
from llm360.finetune.recipe import SftRecipe
from llm360.finetune.training import (
    arguments,
    fit,
    log_rows,
    peft_config,
    quiet,
    require_own_loss,
    scratch,
    sft_dataset,
    train,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Row = Mapping[str, Any]


def sft(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row], recipe: SftRecipe
) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
    """Train on rows of ``{"messages": [...]}`` and return the model and a log row per optimizer step.

    The tokenizer is given the chat template. Equal inputs give equal bytes on one machine and thread count.
    """
    examples, _ = encode_rows(tokenizer, rows, recipe.max_length)
    with scratch() as folder:
        trainer = _trainer(model, tokenizer, examples, recipe, folder)
        trained = train(trainer, label="sft")
        return trained, log_rows(trainer)


def encode_rows(
    tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row], max_length: int
) -> tuple[list[Encoded], dict[str, int]]:
    """Return the rows as tokens that fit, and the counts of rows read, used, cut and dropped."""
    chat_tokenizer(tokenizer)
    return fit([encode(tokenizer, r["messages"]) for r in rows], max_length)


def held_out_loss(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row], recipe: SftRecipe
) -> float:
    """Return the cross entropy per answer token over ``rows``, in nats."""
    examples, _ = encode_rows(tokenizer, rows, recipe.max_length)
    return answer_loss(model, examples, batch=recipe.batch)


def _trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    examples: Sequence[Encoded],
    recipe: SftRecipe,
    folder: str,
) -> Any:
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(**arguments(recipe, folder), dataset_kwargs={"skip_prepare_dataset": True})
    trainer = quiet(SFTTrainer)(
        model=model,
        args=config,
        train_dataset=sft_dataset(examples),
        processing_class=tokenizer,
        peft_config=peft_config(recipe.lora),
    )
    require_own_loss(trainer, model, examples[0])
    return trainer
