"""Planted faults, for tests and experiments: a loss that is NaN where the parameters say so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@contextlib.contextmanager
def nan_at_forward(model: PreTrainedModel, number: int) -> Iterator[None]:
    """Make the logits of the model's ``number``-th forward pass in the block, counted from 0, NaN on every rank."""
    passes = 0

    def plant(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        nonlocal passes
        if passes == number:
            output.logits = output.logits * float("nan")
        passes += 1

    handle = model.register_forward_hook(plant)
    try:
        yield
    finally:
        handle.remove()
