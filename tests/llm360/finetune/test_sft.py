from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from llm360.errors import TrainingError
from llm360.finetune.recipe import Lora, SftRecipe
from llm360.finetune.sft import held_out_loss, sft

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

Model = Callable[[], "LlamaForCausalLM"]
Rows = Callable[[int], list[dict[str, Any]]]


def test_two_runs_give_the_same_bytes_and_a_lower_held_out_loss(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, questions: Rows, recipe: dict[str, Any], tensors: Any
) -> None:
    decided = SftRecipe(**recipe)
    test = questions(20)[16:]
    before = held_out_loss(tiny_model(), tokenizer, test, decided)
    (one, log), (two, again) = (sft(tiny_model(), tokenizer, questions(16), decided) for _ in range(2))
    assert tensors(one) == tensors(two)
    assert log == again
    assert [r["step"] for r in log] == [1, 2, 3, 4]
    assert not any("runtime" in k or "per_second" in k for r in log for k in r)
    assert held_out_loss(one, tokenizer, test, decided) < before


def test_the_model_comes_back_as_plain_as_it_went(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, questions: Rows, recipe: dict[str, Any]
) -> None:
    model, _ = sft(tiny_model(), tokenizer, questions(4), SftRecipe(**recipe))
    assert "forward" not in model.__dict__
    assert not model.training
    assert model.config.use_cache


def test_adapters_are_merged_and_the_base_forgotten(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, questions: Rows, recipe: dict[str, Any], tensors: Any
) -> None:
    lora = Lora(r=2, alpha=4, dropout=0.1, targets=("q_proj", "v_proj"))
    runs = [sft(tiny_model(), tokenizer, questions(8), SftRecipe(**{**recipe, "lora": lora})) for _ in range(2)]
    one, two = (tensors(model) for model, _ in runs)
    before = tensors(tiny_model())
    assert one == two
    assert one.keys() == before.keys()
    changed = {n for n in one if one[n] != before[n]}
    assert changed
    assert all("q_proj" in n or "v_proj" in n for n in changed)
    assert all(p.requires_grad for p in runs[0][0].parameters())


def test_a_loss_that_is_not_finite_is_an_error(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, questions: Rows, recipe: dict[str, Any]
) -> None:
    with pytest.raises(TrainingError, match=r"sft: loss nan at step [0-9].*lower the learning rate"):
        sft(tiny_model(), tokenizer, questions(16), SftRecipe(**{**recipe, "learning_rate": 1e35}))


def test_autocast_leaves_the_weights_in_fp32(
    tiny_model: Model, tokenizer: PreTrainedTokenizerFast, questions: Rows, recipe: dict[str, Any], tensors: Any
) -> None:
    half, _ = sft(tiny_model(), tokenizer, questions(16), SftRecipe(**{**recipe, "bf16": True}))
    full, _ = sft(tiny_model(), tokenizer, questions(16), SftRecipe(**recipe))
    assert {str(p.dtype) for p in half.parameters()} == {"torch.float32"}
    assert tensors(half) != tensors(full)
    assert "forward" not in half.__dict__
