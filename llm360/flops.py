"""How much of a machine's arithmetic training uses: the FLOPs of a token, the machine's peak, their quotient (MFU)."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from llm360.train.distributed import World

MEASURE_SECONDS = 0.05

# Dense TFLOP/s of one GPU: bf16 with fp32 sums, TF32, fp32. Keys are words of the device's name; the key with the most
# words wins. Sources, all NVIDIA's: A100, A40, A10, L4, L40S, H200 and GH200 datasheets (numbers with sparsity halved),
# "H100 Tensor Core GPU Architecture" table 2 (H100 SXM and PCIe), H100 datasheet (NVL), HGX B200 datasheet over 8.
PEAKS = {
    "A10": (125.0, 62.5, 31.2),
    "A40": (149.7, 74.8, 37.4),
    "A100": (312.0, 156.0, 19.5),
    "L4": (121.0, 60.0, 30.3),
    "L40S": (362.0, 183.0, 91.6),
    "H100": (989.4, 494.7, 66.9),
    "H100 PCIE": (756.0, 378.0, 51.2),
    "H100 NVL": (835.5, 417.5, 60.0),
    "H200": (989.4, 494.7, 66.9),
    "H200 NVL": (835.5, 417.5, 60.0),
    "GH200": (990.0, 494.0, 67.0),
    "B200": (2250.0, 1125.0, 75.0),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meter:
    """FLOPs that training on one token takes, and the peak FLOP/s of all ranks together."""

    flops_per_token: float
    peak_flops: float

    def mfu(self, tokens_per_second: float) -> float:
        """Return the model FLOPs utilization: the part of the peak that the model's own arithmetic makes up."""
        return tokens_per_second * self.flops_per_token / self.peak_flops


def meter(model: PreTrainedModel, *, sequence_length: int, precision: str, world: World) -> Meter:
    """Return the meter of a run; the ranks' devices are taken to be alike."""
    return Meter(
        flops_per_token=flops_per_token(model, sequence_length),
        peak_flops=peak_flops(world.device, precision) * world.size,
    )


def flops_per_token(model: PreTrainedModel, sequence_length: int) -> float:
    """Return 6 N + 12 L H Q T, the FLOPs of a token's forward and backward pass (PaLM, arXiv 2204.02311, appendix B).

    N: parameters of the matrix products, the head's included, the embedding's look-up not; L layers, H heads of size
    Q, T sequence_length. Attention counts in full, though half of it is masked; what activation checkpointing computes
    again does not count.
    """
    config = model.config
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)  # a tied one is among them once
    products = matrices - (0 if embedding is head else embedding.numel())
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    flops: float = 6.0 * products + 12.0 * config.num_hidden_layers * heads * size * sequence_length
    return flops


def peak_flops(device: torch.device | str, precision: str) -> float:
    """Return a device's peak FLOP/s for ``precision`` "fp32" or "bf16".

    That of its datasheet where ``PEAKS`` has it (for fp32 the TF32 rate if TF32 is allowed); elsewhere, so on every
    CPU, the rate of a matrix product, measured once in the process: utilization of what this machine does reach.
    """
    import torch

    device = torch.device(device)
    tf32 = torch.get_float32_matmul_precision() != "highest"
    if device.type == "cuda" and (peak := datasheet_flops(torch.cuda.get_device_name(device), precision, tf32=tf32)):
        return peak
    return _measured_flops(str(device), precision, torch.get_num_threads())


def datasheet_flops(name: str, precision: str, *, tf32: bool) -> float | None:
    """Return the FLOP/s in the datasheet of the GPU of that name; None when it is not known, or a part of one (MIG)."""
    words = set(re.findall(r"\w+", name.upper()))
    known = [key for key in PEAKS if words.issuperset(key.split())]
    if not known or "MIG" in words:
        return None
    bf16, with_tf32, fp32 = PEAKS[max(known, key=len)]
    return 1e12 * (bf16 if precision == "bf16" else with_tf32 if tf32 else fp32)


@functools.cache
def _measured_flops(device: str, precision: str, threads: int) -> float:
    """Return the best of several matrix products; the operands are constants, so no generator is advanced."""
    import torch

    dtype, size = torch.bfloat16 if precision == "bf16" else torch.float32, 512 if device == "cpu" else 4096
    a, b = (torch.full((size, size), value, dtype=dtype, device=device) for value in (0.5, 0.25))
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < MEASURE_SECONDS or best == float("inf"):
        begin = time.perf_counter()
        torch.matmul(a, b)
        if device != "cpu":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best
