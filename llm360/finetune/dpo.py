"""Direct preference optimization with trl's DPOTrainer; rewards are measured on held-out pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm360.errors import DataError
from llm360.finetune.chat import Encoded, chat_tokenizer, encode_pair
from llm360.finetune.measure import answer_logps, rewards
from llm360.finetune.recipe import DpoRecipe
from llm360.finetune.training import arguments, log_rows, peft_config, quiet, require_own_loss, scratch, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Row = Mapping[str, Any]
Pair = tuple[Encoded, Encoded]  # chosen, rejected


def dpo(
    model: PreTrainedModel,
    ref_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    train_rows: Sequence[Row],
    test_rows: Sequence[Row],
    recipe: DpoRecipe,
) -> tuple[PreTrainedModel, dict[str, Any], list[dict[str, Any]]]:
    """Train on rows of ``{"prompt", "chosen", "rejected"}``; return the model, a summary and a log row per step.

    The summary holds rewards, margins and accuracies on ``test_rows`` before and after, and the counts of pairs.
    """
    pairs, counts = encode_pairs(tokenizer, train_rows, recipe.max_length)
    held_out, held_out_counts = encode_pairs(tokenizer, test_rows, recipe.max_length)
    reference, start = (_logps(m, held_out, recipe) for m in (ref_model, model))
    with scratch() as folder:
        trainer = _trainer(model, ref_model, tokenizer, pairs, recipe, folder)
        trained = train(trainer, label="dpo")
        logs = log_rows(trainer)
    summary = {
        "pairs": {"train": counts, "test": held_out_counts},
        "before": rewards(start, reference, beta=recipe.beta),
        "after": rewards(_logps(trained, held_out, recipe), reference, beta=recipe.beta),
    }
    return trained, summary, logs


def encode_pairs(
    tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row], max_length: int
) -> tuple[list[Pair], dict[str, int]]:
    """Return pairs as tokens, cut to ``max_length``, and the counts of pairs read, used, cut and dropped.

    Raises DataError when no pair has both answers within ``max_length``.
    """
    chat_tokenizer(tokenizer)
    whole = [encode_pair(tokenizer, r) for r in rows]
    kept = [_last_answer_only(p, max_length) for p in whole if p[0].border < max_length]
    counts = {
        "rows": len(rows),
        "used": len(kept),
        "dropped_prompt_too_long": len(rows) - len(kept),
        "cut": sum(p[0].border < max_length < max(len(e.ids) for e in p) for p in whole),
    }
    if not kept:
        raise DataError(f"{len(rows)} pairs, none with an answer within {max_length} tokens; raise max_length")
    return kept, counts


def _last_answer_only(pair: Pair, max_length: int) -> Pair:
    """Earlier turns of a longer conversation are context: only the last answer is compared."""
    chosen, rejected = (
        Encoded(ids=e.ids, answer=[i >= e.border for i in range(len(e.ids))]).cut(max_length) for e in pair
    )
    return chosen, rejected


def _logps(model: PreTrainedModel, pairs: Sequence[Pair], recipe: DpoRecipe) -> list[tuple[float, float]]:
    flat = answer_logps(model, [e for pair in pairs for e in pair], batch=2 * recipe.batch)
    return list(zip(flat[::2], flat[1::2], strict=True))


def _trainer(
    model: PreTrainedModel,
    ref_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Sequence[Pair],
    recipe: DpoRecipe,
    folder: str,
) -> Any:
    from trl import DPOConfig, DPOTrainer

    config = DPOConfig(**arguments(recipe, folder), beta=recipe.beta, loss_type=["sigmoid"])
    trainer = quiet(DPOTrainer)(
        model=model,
        ref_model=ref_model,
        args=config,
        train_dataset=_dataset(pairs),
        processing_class=tokenizer,
        peft_config=peft_config(recipe.lora),
    )
    require_own_loss(trainer, model, pairs[0][0])
    return trainer


def _dataset(pairs: Sequence[Pair]) -> Any:
    from datasets import Dataset

    return Dataset.from_list([_columns(*pair) for pair in pairs])


def _columns(chosen: Encoded, rejected: Encoded) -> dict[str, list[int]]:
    border = chosen.border
    return {
        "prompt_ids": chosen.ids[:border],
        "chosen_ids": chosen.ids[border:],
        "rejected_ids": rejected.ids[border:],
    }
