"""The training loop, used by every phase of every suite, on one process or many."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from llm360.train.params import PhaseParams
    from llm360.train.trainer import Trainer

# Tensor names: B rows of this rank's part of a batch, L sequence_length, V vocabulary; tokens_BL1: L + 1 tokens a row.


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What one optimizer step measured.

    loss: nats per token, mean over the global batch. grad_norm: global, before clipping. A step at which either is not
    finite left the weights as they were. micro_grad_norm: norm of the gradient of the mean loss over the first
    micro_rows rows, those of the first backward pass of all ranks; None where a step is one such pass. seconds: wall.
    """

    loss: float
    grad_norm: float
    learning_rate: float
    micro_grad_norm: float | None
    micro_rows: int
    seconds: float

    @property
    def finite(self) -> bool:
        """Whether the step was taken."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def train_steps(
    trainer: Trainer, batches: Iterable[torch.Tensor], params: PhaseParams, *, first_step: int
) -> Iterator[StepMetrics]:
    """Take an optimizer step for each batch and yield what it measured.

    batches: this rank's rows of each global batch, int64 [B, L + 1]; first_step: the phase's steps so far.
    """
    for step, tokens_BL1 in enumerate(batches, start=first_step):
        started = time.perf_counter()
        loss, micro_grad_norm = _backward(trainer, tokens_BL1, params)
        grad_norm = trainer.clip_gradients(params.optimizer.clip_norm)
        rate = params.schedule.learning_rate(step)
        measured = StepMetrics(
            loss=loss,
            grad_norm=grad_norm,
            learning_rate=rate,
            micro_grad_norm=micro_grad_norm,
            micro_rows=min(params.micro_batch_size, len(tokens_BL1)) * trainer.world.size,
            seconds=0.0,
        )
        if measured.finite:
            for group in trainer.optimizer.param_groups:
                group["lr"] = rate * group["lr_scale"]
            trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
        yield dataclasses.replace(measured, seconds=time.perf_counter() - started)


def _backward(trainer: Trainer, tokens_BL1: torch.Tensor, params: PhaseParams) -> tuple[float, float | None]:
    """Add up the gradients of the mean loss over the global batch; return that loss and the first pass's norm."""
    import torch

    world, total, micro_grad_norm = trainer.world, 0.0, None
    tokens_BL1 = tokens_BL1.to(world.device)
    targets = params.batch_size * (tokens_BL1.shape[1] - 1)
    for number, micro in enumerate(torch.split(tokens_BL1, params.micro_batch_size)):
        if number == 1:
            share = params.batch_size / (params.micro_batch_size * world.size)
            micro_grad_norm = trainer.grad_norm() * share
        with trainer.autocast():
            loss = trainer.loss(trainer.model, micro, reduction="sum") / targets
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return world.sum(total)[0], micro_grad_norm


def next_token_loss(model: PreTrainedModel, tokens_BL1: torch.Tensor, *, reduction: str) -> torch.Tensor:
    """Return the cross entropy in nats of each row's L next tokens, summed, averaged or [B, L] ("none")."""
    from torch.nn.functional import cross_entropy

    logits_BLV = model(input_ids=tokens_BL1[:, :-1], use_cache=False).logits.float()
    flat = cross_entropy(logits_BLV.flatten(0, 1), tokens_BL1[:, 1:].flatten(), reduction=reduction)
    return flat if reduction != "none" else flat.view(len(tokens_BL1), -1)
