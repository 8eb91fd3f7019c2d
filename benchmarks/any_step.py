"""Prove that ``registry.checkpoint(suite, step=N)`` is the state of a run that was stopped at step N.

    python -m benchmarks.any_step --suite amber-mini --count 20 --seed 1

Run in a workspace that the suite was trained in. One straight run goes from the first weights to the last of the chosen
steps in this process, without reading or writing a checkpoint on the way, and stops at each of them; there every
weight and every moment is compared with what the registry gives, which goes from the nearest saved checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import registry
from benchmarks._measure import show, versions
from llm360.progress import track


def straight(suite: str, steps: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each step with the tensors of a run of one phase that is there."""
    from llm360.config import from_mapping
    from llm360.data.chunks import ChunkReader
    from llm360.environment import use_threads
    from llm360.train.batches import batches
    from llm360.train.distributed import join
    from llm360.train.ledger import passes, phase_started, read_events
    from llm360.train.loop import train_steps
    from llm360.train.params import PhaseParams
    from llm360.train.trainer import Trainer

    artifacts = registry.Workspace.find().artifacts
    events = read_events(artifacts / "ledgers" / suite / "ledger.jsonl")
    recipe = phase_started(events)["recipe"]
    params = from_mapping(PhaseParams, recipe["params"], where=f"the ledger of {suite}")
    use_threads(recipe["environment"]["threads"])
    chunks = ChunkReader(artifacts / "chunks" / params.folder)
    with join() as world:
        trainer, _ = Trainer.restore(artifacts / params.start, params, world)
        for reading in passes(events):
            rows = batches(chunks, reading.chunk, params, world, begin=0)
            taken = train_steps(trainer, rows, params, first_step=reading.first_step - 1)
            for step, _ in enumerate(taken, start=reading.first_step):
                if step in steps:
                    found = trainer.snapshot()
                    yield step, {**found.weights, **{f"adamw/{k}": v for k, v in (found.moments or {}).items()}}
                if step == max(steps):
                    return


def loaded(suite: str, step: int) -> dict[str, Any]:
    """Return the tensors of the state at a step as the registry gives them."""
    checkpoint = registry.checkpoint(suite, step=step)
    weights = dict(checkpoint.model().named_parameters())
    return {**weights, **{f"adamw/{name}": tensor for name, tensor in checkpoint.optimizer().items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="amber-mini")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total = registry.load_metrics(args.suite)["step"].max()
    steps = sorted(random.Random(args.seed).sample(range(1, total), args.count))
    rows, different = [], 0
    for step, there in track(straight(args.suite, steps), label="steps", total=len(steps)):
        started = time.perf_counter()
        here = loaded(args.suite, step)
        odd = [name for name in there.keys() | here.keys() if not same(there.get(name), here.get(name))]
        different += bool(odd)
        seconds = time.perf_counter() - started
        rows.append([str(step), str(len(there)), str(len(odd)), f"{seconds:.2f}"])
    show(f"{args.suite}: states by step against one straight run", ["step", "tensors", "different", "s to load"], rows)
    found = {"suite": args.suite, "steps": steps, "different": different, "versions": versions("torch")}
    print(json.dumps(found))
    return int(different > 0)


def same(a: Any, b: Any) -> bool:
    """Whether two tensors are there and equal in every bit."""
    import torch

    return a is not None and b is not None and torch.equal(a.detach(), b.detach())


if __name__ == "__main__":
    sys.exit(main())
