"""What the bytes of a training run depend on beside its inputs, and the settings that every process here shares."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def environment() -> dict[str, Any]:
    """Return the versions, thread count and CPU capability that a bitwise replay needs to be equal (measured)."""
    import torch
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def use_threads(threads: int) -> None:
    """Fix the thread count and deterministic kernels: LayerNorm's backward differs between thread counts (measured).

    Called before torch is imported, it also shortens the time that waiting threads spin, which costs nothing on an
    idle machine and much on a busy one (measured).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    gc.set_threshold(100_000)  # torch and transformers make millions of objects: 4.9 to 4.0 s of import (measured)
    _keep_freed_memory()
    import torch

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)


def _keep_freed_memory() -> None:
    """Reuse freed buffers: glibc gave each step's back to the kernel, half of a small model's time (measured)."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
