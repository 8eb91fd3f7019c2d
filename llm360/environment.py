"""What the bytes of a training run depend on beside its inputs (measured: each of these changes them)."""

from __future__ import annotations

from typing import Any


def environment() -> dict[str, Any]:
    """Return the versions, thread count and CPU capability that a bitwise replay needs to be equal."""
    import torch
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def use_threads(threads: int) -> None:
    """Fix the thread count and deterministic kernels; LayerNorm's backward differs between thread counts."""
    import torch

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
