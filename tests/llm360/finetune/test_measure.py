from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.finetune.chat import Encoded
from llm360.finetune.measure import answer_logps, answer_loss, rewards

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

Model = Callable[[], "LlamaForCausalLM"]
ROWS = [
    Encoded(ids=[1, 5, 6, 7], answer=[False, False, True, True]),
    Encoded(ids=[1, 9, 8, 7, 6, 5], answer=[False, False, False, True, False, True]),
]
logps = st.tuples(st.floats(-50, 0), st.floats(-50, 0))


def test_loss_is_the_models_own_over_the_answer_tokens(tiny_model: Model) -> None:
    import torch

    model = tiny_model()
    losses = [model(input_ids=torch.tensor([r.ids]), labels=torch.tensor([_labels(r)])).loss.item() for r in ROWS]
    assert answer_loss(model, ROWS, batch=1) == pytest.approx(sum(losses) / 2, abs=1e-6)  # two tokens in each


def _labels(row: Encoded) -> list[int]:
    return [i if a else -100 for i, a in zip(row.ids, row.answer, strict=True)]


def test_padding_changes_nothing_and_the_mode_is_kept(tiny_model: Model) -> None:
    model = tiny_model().train()
    alone, together = answer_logps(model, ROWS, batch=1), answer_logps(model, ROWS, batch=2)
    assert alone == pytest.approx(together, abs=1e-5)
    assert model.training


@given(pairs=st.lists(logps, min_size=1, max_size=5), beta=st.floats(0.01, 1))
def test_a_policy_like_its_reference_has_no_reward(pairs: list[tuple[float, float]], beta: float) -> None:
    same: dict[str, Any] = rewards(pairs, pairs, beta=beta)
    assert same["rewards/margins"] == same["rewards/accuracies"] == 0


@given(pairs=st.lists(logps, min_size=1, max_size=5), gain=st.floats(0.1, 9), beta=st.floats(0.01, 1))
def test_the_margin_is_beta_times_the_gain(pairs: list[tuple[float, float]], gain: float, beta: float) -> None:
    better = [(chosen + gain, rejected) for chosen, rejected in pairs]
    found = rewards(better, pairs, beta=beta)
    assert math.isclose(found["rewards/margins"], beta * gain, rel_tol=1e-6)
    assert found["rewards/accuracies"] == 1
