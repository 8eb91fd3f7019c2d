"""The contenders of the training benchmark: each trains a model of one size on the same rows and times its steps.

Every function returns the moments at which its optimizer steps ended (seconds of one clock), and its parameters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH, LENGTH = 8, 256  # rows and targets of a row
SIZES = {  # hidden, intermediate, layers, heads, vocabulary
    "0.4M": (64, 172, 4, 4, 2048),
    "3M": (192, 512, 4, 4, 4096),
    "20M": (384, 1024, 8, 6, 8192),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one contender. peer: where litgpt or nanochat is, for those that are not installed."""

    contender: str
    size: str
    precision: str
    steps: int
    threads: int
    compiled: bool
    peer: str


def rows(job: Job) -> Any:
    """Return the rows that every contender trains on, int64 [steps * BATCH, LENGTH + 1]."""
    shape = (job.steps * BATCH, LENGTH + 1)
    return np.random.default_rng(0).integers(0, SIZES[job.size][4], shape, dtype=np.int64)


def llama(job: Job) -> Any:
    """Return Amber's architecture at a size, in training mode."""
    from llm360.model.build import build_model

    hidden, intermediate, layers, heads, vocabulary = SIZES[job.size]
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "layers": layers, "heads": heads}
    config = sizes | {"vocab_size": vocabulary, "sequence_length": LENGTH, "rms_norm_eps": 1e-6}
    return build_model("amber", config | {"rope_theta": 1e4, "init_std": 0.02}, seed=1).train()


def ours(job: Job) -> tuple[list[float], int]:
    """Our trainer and loop, from rows in memory, in one backward pass a step."""
    from llm360.environment import use_threads

    use_threads(job.threads)
    import torch

    from llm360.train.distributed import join
    from llm360.train.loop import next_token_loss, train_steps
    from llm360.train.optimizer import build_optimizer
    from llm360.train.trainer import Trainer

    model, params = llama(job), phase_params(job)
    batches = [torch.from_numpy(part) for part in rows(job).reshape(job.steps, BATCH, -1)]
    loss = torch.compile(next_token_loss, dynamic=False) if job.compiled else next_token_loss
    with join() as world:
        trainer = Trainer(model, build_optimizer(model, params.optimizer), world, job.precision, loss)
        ends = [time.perf_counter() for _ in train_steps(trainer, batches, params, first_step=0)]
    return ends, model.num_parameters()


def phase_params(job: Job) -> Any:
    """Return Amber's recipe for the batch of the benchmark."""
    from llm360.train.optimizer import OptimizerParams
    from llm360.train.params import Compute, PhaseParams
    from llm360.train.schedule import Schedule

    return PhaseParams(
        suite="benchmark",
        phase="pretrain",
        folder="benchmark",
        start="",
        branch=None,
        seed=1,
        batch_size=BATCH,
        micro_batch_size=BATCH,
        compute=Compute(precision=job.precision, compile=job.compiled, activation_checkpointing=False),  # type: ignore[arg-type]
        on_nonfinite="stop",
        planted_nan=(),
        optimizer=OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0),
        schedule=Schedule(kind="cosine", peak=3e-4, end=3e-5, warmup_steps=10, total_steps=1000, begin=0),
    )


def plain_loop(job: Job) -> tuple[list[float], int]:
    """The loop that one writes by hand: the model's own loss, clipping, fused AdamW, nothing else set."""
    import torch

    torch.set_num_threads(job.threads)
    model = llama(job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model, dynamic=False) if job.compiled else model
    ends = []
    for part in rows(job).reshape(job.steps, BATCH, -1):
        ids = torch.from_numpy(part[:, :-1].copy())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.precision == "bf16"):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        ends.append(time.perf_counter())
    return ends, model.num_parameters()


def hf_trainer(job: Job) -> tuple[list[float], int]:
    """Transformers' Trainer with its defaults, but for the batch, no saving and no reports."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(job.threads)

    class Clock(TrainerCallback):
        ends: list[float] = []  # noqa: RUF012 - one run a process

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    data = [{"input_ids": row[:-1], "labels": row[:-1]} for row in rows(job)]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            max_steps=job.steps,
            bf16=job.precision == "bf16",
            torch_compile=job.compiled,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            learning_rate=3e-4,
        )
        model = llama(job)
        Trainer(model, arguments, train_dataset=data, callbacks=[Clock()]).train()
    return Clock.ends, model.num_parameters()


def litgpt(job: Job) -> tuple[list[float], int]:
    """Litgpt's ``pretrain.fit`` on its own GPT in LLaMA's shape, with Fabric; clipping and logging as it does."""
    import torch

    torch.set_num_threads(job.threads)
    sys.path.append(job.peer)
    import lightning
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.pretrain import fit

    hidden, intermediate, layers, heads, vocabulary = SIZES[job.size]
    config = Config(
        n_embd=hidden,
        intermediate_size=intermediate,
        n_layer=layers,
        n_head=heads,
        vocab_size=vocabulary,
        padded_vocab_size=vocabulary,
        block_size=LENGTH,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
    )
    fabric = lightning.Fabric(accelerator="cpu", devices=1, precision=_fabric_precision(job))
    model = GPT(config)
    forward = torch.compile(model) if job.compiled else model  # its main compiles
    wrapped = fabric.setup(forward)
    wrapped.max_seq_length = LENGTH
    clock = _clocked(torch.optim.AdamW(wrapped.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True))
    optimizer = fabric.setup_optimizers(clock.optimizer)
    state = {"model": wrapped, "optimizer": optimizer, "iter_num": 0, "step_count": 0}
    loader = torch.utils.data.DataLoader(torch.from_numpy(rows(job)), batch_size=BATCH)
    train = TrainArgs(
        max_tokens=job.steps * BATCH * LENGTH,
        global_batch_size=BATCH,
        micro_batch_size=BATCH,
        max_norm=1.0,
        lr_warmup_steps=10,
        log_interval=1,
        save_interval=None,
    )
    with contextlib.redirect_stdout(sys.stderr):
        fit(fabric, 1, state, loader, loader, Path(), None, train, EvalArgs(interval=10**9, max_iters=1))
    return clock.ends, sum(p.numel() for p in model.parameters())


def _fabric_precision(job: Job) -> str:
    return "bf16-mixed" if job.precision == "bf16" else "32-true"


@dataclasses.dataclass
class _Clocked:
    optimizer: Any
    ends: list[float]


def _clocked(optimizer: Any) -> _Clocked:
    """Return an optimizer whose steps leave the moment at which they ended."""
    clock = _Clocked(optimizer, [])
    optimizer.register_step_post_hook(lambda *_: clock.ends.append(time.perf_counter()))
    return clock


def nanochat(job: Job) -> tuple[list[float], int]:
    """Nanochat's GPT and MuonAdamW in the order of its base_train's step; its model has other parts than LLaMA's."""
    os.environ["NANOCHAT_DTYPE"] = "bfloat16" if job.precision == "bf16" else "float32"
    import torch

    torch.set_num_threads(job.threads)
    sys.path.append(job.peer)
    from nanochat.gpt import GPT, GPTConfig

    hidden, _, layers, heads, vocabulary = SIZES[job.size]
    config = GPTConfig(
        sequence_len=LENGTH,
        vocab_size=vocabulary,
        n_layer=layers,
        n_head=heads,
        n_kv_head=heads,
        n_embd=hidden,
        window_pattern="L",
    )
    ends = []
    with contextlib.redirect_stdout(sys.stderr):
        model = GPT(config)
        model.init_weights()
        optimizer = model.setup_optimizer()
        forward = torch.compile(model, dynamic=False) if job.compiled else model
        for part in torch.from_numpy(rows(job)).view(job.steps, BATCH, -1):
            loss = forward(part[:, :-1].contiguous(), part[:, 1:].contiguous())
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"]
            optimizer.step()
            model.zero_grad(set_to_none=True)
            loss.item()
            ends.append(time.perf_counter())
    return ends, sum(p.numel() for p in model.parameters())


CONTENDERS: dict[str, Callable[[Job], tuple[list[float], int]]] = {
    "ours": ours,
    "hf_trainer": hf_trainer,
    "litgpt": litgpt,
    "nanochat": nanochat,
    "plain_loop": plain_loop,
}


def run(job: Job) -> dict[str, Any]:
    """Run one job in this process; seconds are those from step end to step end, the first ones left out."""
    ends, parameters = CONTENDERS[job.contender](job)
    warm = max(2, len(ends) // 4)
    return {"seconds": np.diff(ends)[warm - 1 :].tolist(), "parameters": parameters}
