"""Whether muP does what it is for, on CrystalCoder's class, parameter groups and optimizer at small widths.

    python -m benchmarks.mup

- Coordinate check: the mean absolute activation after each of a few steps, over widths 64 to 512. With muP the slope of
  its logarithm over the logarithm of the width is near 0; without, activations grow with the width.
- Transfer: held-out loss over a grid of learning rates at widths 64 and 256. With muP the best rate of the small model
  is the best of the large one.
"Without" is the standard parametrization: the same initial values at every width, but one learning rate for all
parameters, scores over the root of the head size, and logits that the width does not scale. At width 64 both have the
same initial values and rates. Tokens are bytes of the installed text. Figures go to docs/figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks._measure import show, use_cores, versions
from benchmarks._mup_figures import draw_coordinates, draw_transfer
from benchmarks._small import (
    VOCAB_SIZE,
    losses,
    mean_and_error,
    print_result,
    rows,
    take_step,
    write_corpus,
)
from llm360.files import sha256_file
from llm360.model.build import build_model
from llm360.processes import fan_out
from llm360.progress import say, track
from llm360.train.optimizer import OptimizerParams, build_optimizer
from llm360.train.schedule import Schedule

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BASE, WIDTHS, TRANSFER = 64, (64, 128, 256, 512), (64, 256)
LAYERS, HEADS, LENGTH = 2, 4, 64
OPTIMIZER = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-9, weight_decay=0.1, clip_norm=1.0)
CHECK_RATE, CHECK_STEPS = 0.01, 6
RATES = tuple(2.0**-power for power in range(5, 13))
NAMED = {True: "muP", False: "standard"}
SHOWN = {"layer 1": "output of the last layer", "scores 1": "attention scores", "logits": "logits"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One model to train; rate is the base learning rate, seed that of weights and data."""

    corpus: Path
    width: int
    mup: bool
    rate: float
    steps: int
    batch: int
    seed: int


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="models of each kind, 2 or more")
    parser.add_argument("--steps", type=int, default=60, help="steps of each model of the transfer")
    parser.add_argument("--workers", type=int, default=2, help="processes, and cores for all of them")
    args = parser.parse_args(argv)
    if args.seeds < 2:
        parser.error("--seeds: read less than 2, which give no standard error; give 2 or more")
    use_cores(args.workers)
    result: dict[str, Any] = {"versions": versions("torch", "transformers"), "seeds": args.seeds, "steps": args.steps}
    with tempfile.TemporaryDirectory(prefix="llm360-mup-") as name:
        corpus = write_corpus(Path(name) / "bytes")
        result["corpus_sha256"] = sha256_file(corpus)
        result |= check_coordinates(corpus, args) | transfer(corpus, args)
    print_result(result)
    return 0


def build(width: int, *, mup: bool, seed: int) -> PreTrainedModel:
    """Return a CrystalCoder of two layers and four heads; see above for what ``mup`` changes."""
    scale = BASE / width
    config = {"hidden_size": width, "intermediate_size": 8 * width // 3, "layers": LAYERS, "heads": HEADS}
    config |= {"vocab_size": VOCAB_SIZE, "sequence_length": LENGTH, "rotary_dim": 4, "layer_norm_eps": 1e-5}
    scales = {"init_std": 0.073, "embeddings_scale": 14.6, "output_alpha": 2.22, "width_scale": scale}
    if not mup:  # one deviation for all matrices and the embeddings, whose output has the same size nevertheless
        root = math.sqrt(scale)
        scales |= {"init_std": 0.073 * root, "embeddings_scale": 14.6 / root, "width_scale": 1.0}
    model = build_model("crystal", config | scales, seed=seed)
    if not mup:
        for block in model.transformer.h:
            block.attn.scaling = block.attn.head_dim**-0.5
    return model


def coordinates(task: Task) -> dict[str, list[float]]:
    """Return the mean absolute value of each activation, before the first step and after each one."""
    torch.set_num_threads(1)
    model = build(task.width, mup=task.mup, seed=task.seed)
    optimizer = build_optimizer(model, OPTIMIZER)
    (probe,) = rows(task.corpus, held_out=True, count=1, batch=4, length=LENGTH // 2, seed=0)
    sizes = [activation_sizes(model, probe)]
    for tokens in _batches(task, LENGTH // 2):
        take_step(model, optimizer, tokens, rate=task.rate, params=OPTIMIZER)
        sizes.append(activation_sizes(model, probe))
    return {name: [each[name] for each in sizes] for name in sizes[0]}


def _batches(task: Task, length: int) -> Iterator[torch.Tensor]:
    return rows(task.corpus, held_out=False, count=task.steps, batch=task.batch, length=length, seed=task.seed)


@torch.no_grad()
def activation_sizes(model: PreTrainedModel, tokens: torch.Tensor) -> dict[str, float]:
    """Return the mean absolute value of the layers' outputs, the attention scores before rotation, and the logits."""
    sizes: dict[str, float] = {}
    hooks = []
    for number, block in enumerate(model.transformer.h):
        hooks.append(block.register_forward_hook(functools.partial(_keep_output, sizes, f"layer {number}")))
        keep = functools.partial(_keep_scores, sizes, f"scores {number}", block.attn)
        hooks.append(block.attn.c_attn.register_forward_hook(keep))
    sizes["logits"] = model(tokens[:, :-1], use_cache=False).logits.abs().mean().item()
    for hook in hooks:
        hook.remove()
    return sizes


def _keep_output(sizes: dict[str, float], name: str, module: Any, inputs: Any, output: torch.Tensor) -> None:
    sizes[name] = output.abs().mean().item()


def _keep_scores(sizes: dict[str, float], name: str, attention: Any, module: Any, inputs: Any, qkv: Any) -> None:
    query, key, _ = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    sizes[name] = (query @ key.transpose(-1, -2) * attention.scaling).abs().mean().item()


def slope(widths: Sequence[float], values: Sequence[float]) -> float:
    """Return the power of the width that values grow with: the least-squares slope of both logarithms."""
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


def check_coordinates(corpus: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run the coordinate check, print its slopes, draw them and return them."""
    common = {"corpus": corpus, "rate": CHECK_RATE, "steps": CHECK_STEPS, "batch": 8}
    tasks = [
        Task(width=width, mup=mup, seed=seed, **common)
        for mup in NAMED
        for width in WIDTHS
        for seed in range(args.seeds)
    ]
    found = dict(track(fan_out(coordinates, tasks, workers=args.workers), label="coordinates", total=len(tasks)))
    sizes = {
        NAMED[mup]: {
            name: [np.mean([found[t][name] for t in tasks if t.mup == mup and t.width == width], 0) for width in WIDTHS]
            for name in found[tasks[0]]
        }
        for mup in NAMED
    }
    slopes = {
        kind: {name: slope(WIDTHS, [each[-1] for each in by_width]) for name, by_width in by_name.items()}
        for kind, by_name in sizes.items()
    }
    names = list(slopes["muP"])
    title = f"power of the width that the mean activation grows with, after {CHECK_STEPS} steps"
    show(title, ["", *names], [[kind, *(f"{slopes[kind][n]:+.2f}" for n in names)] for kind in slopes])
    draw_coordinates(sizes, WIDTHS, SHOWN)
    return {"slopes": slopes}


def final_loss(task: Task) -> float:
    """Train with a warm-up and a linear line to 0, and return the held-out loss in nats per byte."""
    torch.set_num_threads(1)
    model = build(task.width, mup=task.mup, seed=task.seed)
    optimizer = build_optimizer(model, OPTIMIZER)
    warmup = task.steps // 10
    line = Schedule(kind="linear", peak=task.rate, end=0.0, warmup_steps=warmup, total_steps=task.steps, begin=0)
    for step, tokens in enumerate(_batches(task, LENGTH)):
        take_step(model, optimizer, tokens, rate=line.learning_rate(step), params=OPTIMIZER)
    return losses(model, list(rows(task.corpus, held_out=True, count=4, batch=32, length=LENGTH, seed=0))).mean().item()


def transfer(corpus: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train over the grid of rates, print the losses, draw them and return them with the best rates."""
    tasks = [
        Task(corpus=corpus, width=width, mup=mup, rate=rate, steps=args.steps, batch=8, seed=seed)
        for width in sorted(TRANSFER, reverse=True)  # the longest first
        for mup in NAMED
        for rate in RATES
        for seed in range(args.seeds)
    ]
    found = dict(track(fan_out(final_loss, tasks, workers=args.workers), label="rates", total=len(tasks)))
    curves = {
        (NAMED[mup], width): [
            mean_and_error([found[t] for t in tasks if (t.mup, t.width, t.rate) == (mup, width, rate)])
            for rate in RATES
        ]
        for mup in NAMED
        for width in TRANSFER
    }
    draw_transfer(curves, RATES)
    return tell(curves)


def tell(curves: dict[tuple[str, int], list[tuple[float, float]]]) -> dict[str, Any]:
    """Print the losses by rate and return them with the best rate of each model."""
    labels = [f"2^{math.log2(rate):.0f}" for rate in RATES]
    named = {f"{kind}, width {width}": curve for (kind, width), curve in curves.items()}
    cells = [[name, *(f"{loss:.3f}" for loss, _ in curve)] for name, curve in named.items()]
    show("held-out loss in nats per byte, by base learning rate", ["", *labels], cells)
    best = {name: labels[int(np.argmin([loss for loss, _ in curve]))] for name, curve in named.items()}
    say(f"best rates: {best}")
    return {"rates": labels, "losses": named, "best_rates": best}


if __name__ == "__main__":
    sys.exit(main())
