from __future__ import annotations

from typing import Any

import pytest

from llm360.config import from_mapping
from llm360.errors import ConfigError
from llm360.finetune.recipe import DpoParams, DpoRecipe, SftRecipe


def test_every_decision_is_required(recipe: dict[str, Any]) -> None:
    for name in recipe:
        with pytest.raises(ConfigError, match=f"missing {name}"):
            from_mapping(SftRecipe, {k: v for k, v in recipe.items() if k != name}, where="sft")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("epochs", 0, "epochs: read 0, expected a number above 0"),
        ("learning_rate", -1.0, "learning_rate: read -1.0"),
        ("warmup_ratio", 1.0, "expected 0 <= ratio < 1"),
        ("max_length", 1, "at least 2 tokens"),
        ("schedule", "cosin", "did you mean 'cosine'"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(recipe: dict[str, Any], field: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping(SftRecipe, {**recipe, field: value}, where="sft")


def test_beta_is_positive(recipe: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="beta: read 0"):
        from_mapping(DpoRecipe, {**recipe, "beta": 0}, where="dpo")


def test_a_section_is_read_with_adapters_and_base(recipe: dict[str, Any]) -> None:
    lora = {"r": 4, "alpha": 8, "dropout": 0.0, "targets": ["q_proj"]}
    section = {
        "base": {"suite": "amber-mini", "ckpt": 355},
        "instructions": "amber-mini",
        "sft": recipe,
        "dpo": {**recipe, "beta": 0.1, "lora": lora},
    }
    params = from_mapping(DpoParams, section, where="dpo.amber-safe-mini")
    assert params.sft.lora is None
    assert params.dpo.lora is not None
    assert params.dpo.lora.targets == ("q_proj",)
