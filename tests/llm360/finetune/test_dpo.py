from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from llm360.errors import DataError
from llm360.finetune.dpo import dpo, encode_pairs
from llm360.finetune.recipe import DpoRecipe, Lora

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

Model = Callable[[], "LlamaForCausalLM"]
Rows = Callable[[int], list[dict[str, Any]]]


def test_two_runs_give_the_same_bytes_and_a_held_out_margin(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, preferences: Rows, recipe: dict[str, Any], tensors: Any
) -> None:
    decided = DpoRecipe(**recipe, beta=0.1)
    train, test = preferences(16)[:12], preferences(16)[12:]
    runs = [dpo(tiny_model(), tiny_model(), tokenizer, train, test, decided) for _ in range(2)]
    (one, summary, log), (two, again, log_again) = runs
    assert tensors(one) == tensors(two)
    assert (summary, log) == (again, log_again)
    assert summary["before"]["rewards/margins"] == 0
    assert summary["after"]["rewards/margins"] > 0
    assert summary["after"]["rewards/accuracies"] == 1
    assert [r["step"] for r in log] == [1, 2, 3]


def test_the_measured_margin_is_the_trainers(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, preferences: Rows, recipe: dict[str, Any]
) -> None:
    import torch

    decided = DpoRecipe(**{**recipe, "batch": 8, "learning_rate": 1e-12}, beta=0.5)
    policy = tiny_model()
    with torch.no_grad():
        policy.lm_head.weight.add_(torch.randn(policy.lm_head.weight.shape, generator=torch.Generator().manual_seed(1)))
    rows = preferences(8)
    _, summary, log = dpo(policy, tiny_model(), tokenizer, rows, rows, decided)
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen"):
        assert summary["before"][name] == pytest.approx(log[0][name], abs=1e-4)


def test_adapters_train_against_the_given_reference(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, preferences: Rows, recipe: dict[str, Any]
) -> None:
    lora = Lora(r=2, alpha=4, dropout=0.0, targets=("q_proj",))
    decided = DpoRecipe(**{**recipe, "lora": lora}, beta=0.1)
    model, summary, _ = dpo(tiny_model(), tiny_model(), tokenizer, preferences(8), preferences(8), decided)
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert summary["after"]["rewards/margins"] != 0


def test_pairs_that_do_not_fit_are_counted(tokenizer: PreTrainedTokenizerFast, preferences: Rows) -> None:
    rows = preferences(4)
    rows[0] = {**rows[0], "prompt": [{"role": "user", "content": "long " * 200}]}
    kept, counts = encode_pairs(tokenizer, rows, 128)
    assert len(kept) == counts["used"] == 3
    assert counts == {"rows": 4, "used": 3, "dropped_prompt_too_long": 1, "cut": 0}
    with pytest.raises(DataError, match="4 pairs, none with an answer within 4 tokens; raise max_length"):
        encode_pairs(tokenizer, rows, 4)


def test_only_the_last_answer_of_a_conversation_is_compared(
    tokenizer: PreTrainedTokenizerFast, preferences: Rows
) -> None:
    earlier = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]
    row = preferences(1)[0]
    long, short = ({**row, "prompt": [*p, *row["prompt"]]} for p in (earlier, []))
    (chosen, _), (alone, _) = encode_pairs(tokenizer, [long, short], 128)[0]
    assert sum(chosen.answer) == sum(alone.answer)
