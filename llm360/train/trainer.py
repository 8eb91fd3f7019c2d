"""What one process trains with: the model, its optimizer and its place among the ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import llm360.checkpoint as checkpoints
from llm360.checkpoint import Tensors, TrainState
from llm360.files import verify
from llm360.model.build import check_rope_fp32
from llm360.train.distributed import blocks, clip_gradients, grad_norm
from llm360.train.loop import next_token_loss
from llm360.train.optimizer import build_optimizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from llm360.train.distributed import World
    from llm360.train.params import PhaseParams


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A model in training mode, sharded over the ranks, with its AdamW; fp32 whatever the precision of a step."""

    model: PreTrainedModel
    optimizer: torch.optim.AdamW
    world: World
    precision: str
    loss: Callable[..., torch.Tensor] = next_token_loss

    @classmethod
    def restore(cls, folder: Path, params: PhaseParams, world: World) -> tuple[Trainer, TrainState]:
        """Return the trainer that a checkpoint left, and where it stood; every file is verified first."""
        verify(folder)
        model = checkpoints.load_model(folder, check=False).train()
        check_rope_fp32(model)
        if params.compute.activation_checkpointing:
            model.activation_checkpointing_enable()
        loss = _compiled(model, world) if params.compute.compile else next_token_loss
        world.shard(model)
        trainer = cls(model, build_optimizer(model, params.optimizer), world, params.compute.precision, loss)
        return trainer, trainer.load(folder)

    def load(self, folder: Path) -> TrainState:
        """Put a checkpoint's weights, moments and random state in place, bit for bit; return where it stood.

        Raises IntegrityError when its tensors are not those of the model.
        """
        import torch

        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, whole in checkpoints.tensors_of(folder, checkpoints.WEIGHTS, parameters):
                parameters[name].copy_(self.world.place(whole, parameters[name]))
            self.optimizer.state.clear()
            step = checkpoints.steps_taken(folder).to(self.world.device)
            for name, kind, whole in checkpoints.moments_of(folder, parameters):
                here = self.optimizer.state[parameters[name]]
                here.setdefault("step", step.clone())
                here[kind] = self.world.place(whole, parameters[name]).clone()
        state = TrainState.read(folder)
        checkpoints.set_rng_state(state.torch_rng)
        return state

    def snapshot(self) -> Tensors:
        """Return a copy of the whole weights and moments on the CPU, fp32; all ranks take part, the first keeps it."""
        state = checkpoints.optimizer_tensors(self.model, self.optimizer)
        weights = self._gathered({name: p.detach() for name, p in self.model.named_parameters()})
        return Tensors(weights, self._gathered(state))

    def _gathered(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        kept = {}
        for name, tensor in tensors.items():
            whole = self.world.whole(tensor)
            if self.world.leads:
                kept[name] = whole
        return kept

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of a forward pass: bf16 matrix products, or fp32 as everything is."""
        import torch

        bf16 = self.precision == "bf16"
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16, enabled=bf16)

    def grad_norm(self) -> float:
        """Return the norm of the gradients so far, over all parameters and ranks."""
        return grad_norm(self.world, self.model.parameters())

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients to at most ``max_norm`` and return their norm before it, over all ranks."""
        return clip_gradients(self.world, self.model.parameters(), max_norm)


def _compiled(model: PreTrainedModel, world: World) -> Callable[..., torch.Tensor]:
    """Return the loss with the model compiled: both as one (the head is a third of a small model), or layer by layer.

    Sharded, the layers alone: their weights are gathered between them, and they compile in a third of the time.
    """
    import torch

    if world.size == 1:
        compiled: Callable[..., torch.Tensor] = torch.compile(next_token_loss, dynamic=False)
        return compiled
    for block in blocks(model):
        block.compile(dynamic=False)
    return next_token_loss
