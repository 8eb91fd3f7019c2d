from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import DataError, TrainingError
from llm360.finetune.chat import Encoded
from llm360.finetune.recipe import SftRecipe
from llm360.finetune.training import arguments, fit, peft_config, quiet, require_own_loss

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

rows = st.builds(
    lambda prompt, answer: Encoded(ids=[5] * (prompt + answer), answer=[False] * prompt + [True] * answer),
    st.integers(1, 20),
    st.integers(1, 20),
)


@given(encoded=st.lists(rows, min_size=1, max_size=8), length=st.integers(2, 30))
def test_rows_that_fit_are_all_counted(encoded: list[Encoded], length: int) -> None:
    if all(r.border >= length for r in encoded):
        with pytest.raises(DataError, match=f"none with an answer within {length} tokens"):
            fit(encoded, length)
        return
    kept, counts = fit(encoded, length)
    assert counts["used"] + counts["dropped_prompt_too_long"] == counts["rows"] == len(encoded)
    assert all(len(r.ids) <= length and any(r.answer) for r in kept)
    assert counts["cut"] == sum(r.border < length < len(r.ids) for r in encoded)


def test_nothing_is_saved_or_sent(recipe: dict[str, Any]) -> None:
    given_ = arguments(SftRecipe(**recipe), "folder")
    assert (given_["save_strategy"], given_["report_to"], given_["optim"]) == ("no", "none", "adamw_torch")


def test_a_quiet_trainer_keeps_rows_and_reports_nothing() -> None:
    class Trainer:
        def _prepare_dataset(self, dataset: Any, name: str) -> Any:
            raise AssertionError

        def _send_telemetry(self) -> None:
            raise AssertionError

    trainer = quiet(Trainer)()
    trainer._send_telemetry()
    assert trainer._prepare_dataset([1], "train") == [1]


def test_without_adapters_there_is_no_peft() -> None:
    assert peft_config(None) is None


def test_a_trainer_with_another_loss_than_the_models_is_refused(tiny_model: Callable[[], LlamaForCausalLM]) -> None:
    model = tiny_model()

    class Fused:
        class Out:
            class loss:  # noqa: N801
                item = staticmethod(lambda: 1.0)

        model = staticmethod(lambda **_: Fused.Out)

    with pytest.raises(TrainingError, match=r"the trainer's loss is 1.0000.*LlamaForCausalLM.*logit_scale"):
        require_own_loss(Fused, model, Encoded(ids=[1, 5, 6], answer=[False, True, True]))
