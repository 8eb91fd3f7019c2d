"""The training loop, used by every phase of every suite."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from llm360.data.order import step_rows, steps_in_chunk
from llm360.errors import TrainingError
from llm360.train.schedule import Schedule

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from transformers import PreTrainedModel

# Tensor names: B rows of a batch, L sequence_length; tokens_BL1 holds L + 1 tokens a row.


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerParams:
    """AdamW. Amber: betas 0.9 0.95, eps 1e-8, decay 0.1; CrystalCoder: eps 1e-9 (their published parameters)."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What one optimizer step measured: loss is the mean over the global batch, grad_norm is the global norm."""

    loss: float
    grad_norm: float
    learning_rate: float
    seconds: float


def build_optimizer(model: PreTrainedModel, params: OptimizerParams) -> torch.optim.AdamW:
    """Return AdamW over the model family's parameter groups; the rates are set before each step.

    Not fused: fused and unfused AdamW differ in their last bits (measured), and every machine has the unfused one.
    """
    import torch

    from llm360.model.build import parameter_groups

    groups = parameter_groups(model, weight_decay=params.weight_decay, learning_rate=0.0)
    return torch.optim.AdamW(groups, betas=(params.beta1, params.beta2), eps=params.eps, fused=False)


def train_chunk(
    model: PreTrainedModel,
    optimizer: torch.optim.AdamW,
    tokens: npt.NDArray[Any],
    *,
    order: npt.NDArray[Any],
    first_step: int,
    batch_size: int,
    micro_batch_size: int,
    schedule: Schedule,
    clip_norm: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[StepMetrics]:
    """Take the optimizer steps of one chunk and yield what each measured.

    tokens: [rows, L + 1]; ``order`` gives the rows by position; ``first_step`` is the phase's step count so far.
    Raises TrainingError at a loss or gradient that is not finite, before the weights are touched.
    """
    import torch

    for step in range(steps_in_chunk(rows=len(tokens), batch_size=batch_size)):
        started = clock()
        rows = step_rows(order, step=step, batch_size=batch_size)
        tokens_BL1 = torch.from_numpy(tokens[rows].astype("int64"))
        optimizer.zero_grad(set_to_none=True)
        loss = _accumulate(model, tokens_BL1, micro_batch_size)
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm).item()
        _require_finite(loss, grad_norm, first_step + step)
        rate = schedule.learning_rate(first_step + step)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        optimizer.step()
        yield StepMetrics(loss=loss, grad_norm=grad_norm, learning_rate=rate, seconds=clock() - started)


def _accumulate(model: PreTrainedModel, tokens_BL1: torch.Tensor, micro_batch_size: int) -> float:
    """Add up the gradients of the mean loss over the whole batch and return that loss."""
    import torch

    total = 0.0
    targets = tokens_BL1[:, 1:].numel()
    for micro in torch.split(tokens_BL1, micro_batch_size):
        loss = next_token_loss(model, micro, reduction="sum") / targets
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


def next_token_loss(model: PreTrainedModel, tokens_BL1: torch.Tensor, *, reduction: str) -> torch.Tensor:
    """Return the cross entropy in nats of each row's L next tokens, summed, averaged or [B, L] ("none")."""
    from torch.nn.functional import cross_entropy

    logits_BLV = model(input_ids=tokens_BL1[:, :-1], use_cache=False).logits.float()
    flat = cross_entropy(logits_BLV.flatten(0, 1), tokens_BL1[:, 1:].flatten(), reduction=reduction)
    return flat if reduction != "none" else flat.view(len(tokens_BL1), -1)


def _require_finite(loss: float, grad_norm: float, step: int) -> None:
    import math

    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise TrainingError(
            f"step {step} of the phase: loss {loss}, gradient norm {grad_norm}, expected finite numbers; "
            f"the last checkpoint is whole: lower the rate or look at this chunk's rows, then run again"
        )
