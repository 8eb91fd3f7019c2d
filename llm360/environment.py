"""What the bytes of a training run depend on beside its inputs, and the settings that every process here shares."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # mallopt(3)
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
WRITERS = ("torch", "transformers", "safetensors", "tokenizers")  # they compute and write a checkpoint's files
FEATURES = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")  # that choose a matrix product
VARIABLES = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA")
GPU_VARIABLES = (CUBLAS, "NVIDIA_TF32_OVERRIDE")


def environment(*, optimizer: str = "adamw, fused") -> dict[str, Any]:
    """Return, as plain JSON, what must be equal for a bitwise replay; the keys are always the same.

    Versions of what computes and writes (libc: its cosine gives the learning rate), threads; of the CPU its name, the
    kernels that torch chose and the features that the matrix libraries choose by; the device, and of a GPU its driver,
    cuda and cudnn versions, null on the CPU; the implementation of attention and optimizer; the flags of determinism
    and precision; and the environment variables that choose other kernels, where set.
    """
    import torch

    gpu = torch.cuda.is_available()
    known = torch.cpu.get_capabilities()
    names = VARIABLES + GPU_VARIABLES if gpu else VARIABLES
    return {
        **{name: importlib.metadata.version(name) for name in WRITERS},
        "torch": str(torch.__version__),  # with the build: +cpu, +cu130
        "libc": " ".join(platform.libc_ver()),
        "threads": torch.get_num_threads(),
        "cpu": str(known.get("cpu_name")),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_features": [name for name in FEATURES if known.get(name)],
        **_device(gpu),
        "attention": "sdpa",
        "optimizer": optimizer,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "variables": {name: os.environ[name] for name in names if name in os.environ},
    }


def _device(gpu: bool) -> dict[str, Any]:
    import torch

    if not gpu:
        return {"device": "cpu", "driver": None, "cuda": None, "cudnn": None}
    driver = Path("/sys/module/nvidia/version")
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.read_text().strip() if driver.is_file() else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }


def use_threads(threads: int) -> None:
    """Fix the thread count, deterministic kernels and full fp32 products on CPU and GPU.

    LayerNorm's backward differs between thread counts (measured). Called before torch is imported, it also shortens
    the time that waiting threads spin, which costs nothing on an idle machine and much on a busy one (measured).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    os.environ.setdefault(CUBLAS, ":4096:8")  # read when CUDA starts; without it cuBLAS is not deterministic
    gc.set_threshold(100_000)  # torch and transformers make millions of objects: 4.9 to 4.0 s of import (measured)
    _keep_freed_memory()
    import torch

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # It would fill every new tensor with NaN, for kernels that read what they did not write: 3 to 11 % (measured).
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")  # no TF32 on a GPU, no bf16 in oneDNN
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def _keep_freed_memory() -> None:
    """Reuse freed buffers: glibc gave each step's back to the kernel, a sixth to a half of the time (measured)."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)  # a threshold would end at 32 MiB, and logits are larger
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
