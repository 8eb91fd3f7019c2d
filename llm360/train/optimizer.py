"""AdamW as both suites use it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from llm360.model.build import parameter_groups

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerParams:
    """AdamW. Amber: betas 0.9 0.95, eps 1e-8, decay 0.1; CrystalCoder: eps 1e-9 (their published parameters)."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float


def build_optimizer(model: PreTrainedModel, params: OptimizerParams) -> torch.optim.AdamW:
    """Return AdamW over the model family's parameter groups; the rates are set before each step.

    Fused: one pass over the memory instead of ten. Its last bits are not those of the unfused one (measured), so the
    recorded environment names it.
    """
    import torch

    groups = parameter_groups(model, weight_decay=params.weight_decay, learning_rate=0.0)
    return torch.optim.AdamW(groups, betas=(params.beta1, params.beta2), eps=params.eps, fused=True)
