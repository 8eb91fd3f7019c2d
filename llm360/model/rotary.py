"""Rotary positions of CrystalCoder: the first part of each head, in interleaved pairs, in fp32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

ROPE_BASE = 10000.0  # a constant of the published code; its configuration has no key for it


class CrystalRotary(nn.Module):
    """Cosines and sines of the rotation angles, in fp32 whatever the model is cast to."""

    inv_freq: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("inv_freq", self.inverse_frequencies(torch.get_default_device()), persistent=False)

    def inverse_frequencies(self, device: torch.device) -> Tensor:
        """Return the inverse frequencies, fp32 [dim / 2]; computed on the CPU, so that every device has the same."""
        exponents = torch.arange(0, self.dim, 2, dtype=torch.float32, device="cpu") / self.dim
        return (1.0 / ROPE_BASE**exponents).to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CrystalRotary:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # A cast to bf16 would move the angle at position 2047 by up to 0.37 rad: follow the device only.
        self.inv_freq = self.inverse_frequencies(self.inv_freq.device)
        return self

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, fp32 [batch, 1, length, dim / 2], of the positions [batch, length]."""
        angles = position_ids[:, None, :, None].float() * self.inv_freq
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the first 2 * cos.shape[-1] components of each head of ``x`` [batch, heads, length, head size].

    Components 2i and 2i + 1 make a pair (GPT-J's interleaving); the rest passes through. Turned in fp32.
    """
    turned, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    even, odd = turned[..., 0::2].float(), turned[..., 1::2].float()
    pairs = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return torch.cat((pairs.flatten(-2).to(x.dtype), rest), dim=-1)
