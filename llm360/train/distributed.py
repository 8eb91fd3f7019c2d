"""Many ranks: who this process is, its part of the tensors and rows, and sums over all of them.

Weights, gradients and moments are sharded over the ranks with FSDP2; with ``replicas`` above 1, each group of
size / replicas ranks holds one whole copy (HSDP). The saved form never depends on this: ``whole`` gathers a tensor,
``place`` cuts it again, both bit for bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from llm360.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import PreTrainedModel

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The ranks of a run, seen from one of them; ``mesh`` is None for a single process.

    The mesh is [shard], or [replicate, shard] with replicas above 1.
    """

    rank: int
    size: int
    replicas: int
    device: torch.device
    mesh: DeviceMesh | None

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes and speaks for all."""
        return self.rank == 0

    def shard(self, model: PreTrainedModel) -> None:
        """Move the model to the device and shard it in place: each decoder block, then the rest, tied weights once.

        Gradients are the ranks' sums: each rank's loss is a sum over its own targets, divided by those of all ranks.
        No mixed-precision policy: the fp32 weights are gathered as they are, and autocast rounds inside the products.
        """
        model.to(self.device)
        if self.mesh is None:
            return
        from torch.distributed.fsdp import FSDPModule, fully_shard

        for block in blocks(model):
            fully_shard(block, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo knows no reduction that multiplies

    def place(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return this rank's part of a whole tensor that every rank has, laid out like ``like``; no communication."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        whole = whole.detach().to(self.device)
        if not isinstance(like, DTensor):
            return whole
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor as a copy on the CPU that no later update changes. All ranks must call it."""
        from torch.distributed.tensor import DTensor

        gathered = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return gathered.detach().to("cpu", copy=True)

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over the ranks, in float64 and in the order of the ranks. All must call it."""
        if self.mesh is None:
            return [float(v) for v in values]
        import torch
        import torch.distributed as dist

        mine = torch.tensor(values, dtype=torch.float64, device=self.device)
        of_ranks = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(of_ranks, mine)
        return [sum(of_value) for of_value in zip(*(t.tolist() for t in of_ranks), strict=True)]

    def rows(self, batch_size: int) -> slice:
        """Return this rank's rows of a global batch: equal parts, in the order of the ranks.

        Raises ConfigError when the ranks do not divide the batch.
        """
        if batch_size % self.size:
            raise ConfigError(
                f"batch_size is {batch_size} rows and there are {self.size} ranks, expected a batch that they share "
                f"equally: change the number of ranks (last bits depend on it), or batch_size (the run does)"
            )
        part = batch_size // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.mesh is not None:
            import torch.distributed as dist

            dist.barrier()

    def share(self, value: T) -> T:
        """Return rank 0's value, which JSON must be able to hold, on every rank. All must call it."""
        if self.mesh is None:
            return value
        import torch
        import torch.distributed as dist

        text = bytearray(json.dumps(value).encode() if self.leads else b"")
        length = torch.tensor([len(text)], device=self.device)
        dist.broadcast(length, src=0)
        text = text if self.leads else bytearray(int(length.item()))
        data = torch.frombuffer(text, dtype=torch.uint8).to(self.device)
        dist.broadcast(data, src=0)
        shared: T = json.loads(data.cpu().numpy().tobytes())
        return shared


def blocks(model: PreTrainedModel) -> list[torch.nn.Module]:
    """Return the decoder's layers, the parts that are compiled and gathered one at a time."""
    names = set(model._no_split_modules or ())
    return [m for m in model.modules() if type(m).__name__ in names]


def grad_norm(world: World, parameters: Iterable[Tensor]) -> float:
    """Return the L2 norm of the whole gradient, in one sum over the ranks; call on every rank."""
    import torch

    norm = torch.nn.utils.get_total_norm([_local(p.grad) for p in parameters if p.grad is not None]).item()
    if world.mesh is None:
        return norm
    (squares,) = world.sum(norm**2)
    return float((squares / world.replicas) ** 0.5)


def clip_gradients(world: World, parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale the gradients in place so that their global norm is at most ``max_norm``; return the norm before."""
    import torch

    parameters = list(parameters)
    norm = grad_norm(world, parameters)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.tensor(norm, device=world.device))
    return norm


def _local(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@contextmanager
def join(*, replicas: int = 1) -> Iterator[World]:
    """Yield the world that torchrun's environment or an existing process group describes; alone, a world of one.

    NCCL and cuda:LOCAL_RANK where there is a GPU, gloo otherwise. A group that was made here ends with the block.
    Raises ConfigError when ``replicas`` does not divide the number of ranks.
    """
    import torch.distributed as dist

    device = _device()
    found = dist.is_initialized()
    size = dist.get_world_size() if found else int(os.environ.get("WORLD_SIZE", "1"))
    if replicas < 1 or size % replicas:
        raise ConfigError(
            f"replicas is {replicas} and there are {size} ranks, expected a divisor of {size}: change either"
        )
    if size == 1:
        yield World(0, 1, 1, device, None)
        return
    if not found:
        gpu = device.type == "cuda"
        dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    yield World(dist.get_rank(), size, replicas, device, _mesh(device, size, replicas))
    if not found:  # not after an error: it would wait for ranks that wait for this one
        dist.destroy_process_group()


def _device() -> torch.device:
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    local = (
        int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    )  # Ray may show each rank its own GPU only
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _mesh(device: torch.device, size: int, replicas: int) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    if replicas == 1:
        return init_device_mesh(device.type, (size,), mesh_dim_names=("shard",))
    return init_device_mesh(device.type, (replicas, size // replicas), mesh_dim_names=("replicate", "shard"))
