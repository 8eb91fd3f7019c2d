"""Training speed, side by side: ours, transformers' Trainer, litgpt's and nanochat's loops.

    python -m benchmarks.train --sizes 0.4M 3M 20M --litgpt FOLDER --nanochat FOLDER

One batch of 8 rows of 256 targets, the same threads, fp32 and bf16; every run is a fresh process, runs take turns, and
the median step of all runs counts, from the end of one step to the end of the next. FOLDER of litgpt is one that
`pip install --target FOLDER --no-deps litgpt lightning ...` made; that of nanochat is a checkout. A contender without
its folder is left out. With --compiled every contender compiles its model by TorchInductor; first steps are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._measure import in_fresh_process, show, versions
from benchmarks._peers_train import BATCH, CONTENDERS, LENGTH, SIZES, Job, llama, phase_params, rows, run
from llm360.progress import track

GOALS = {"hf_trainer": 1.3, "litgpt": 1.0, "nanochat": 1.0}
SHARE = 0.01  # of a step, for what is not the step itself
CHUNK_STEPS = 4  # as in the mini suites


def main() -> int:
    args = parse()
    peers = {"litgpt": args.litgpt, "nanochat": args.nanochat}
    contenders = [c for c in args.only if peers.get(c, "here")]
    jobs = [
        Job(contender=c, size=s, precision=p, steps=args.steps, threads=args.threads, compiled=args.compiled,
            peer=peers.get(c) or "")
        for _ in range(args.runs) for s in args.sizes for p in args.precisions for c in contenders
    ]  # fmt: skip
    seconds: dict[tuple[str, str, str], list[float]] = {}
    parameters = {}
    for job in track(jobs, label="runs", total=len(jobs)):
        found, _ = in_fresh_process(run, job)
        seconds.setdefault((job.size, job.precision, job.contender), []).extend(found["seconds"])
        parameters[job.size, job.contender] = found["parameters"]
    result: dict[str, Any] = {"speed": table(args, contenders, seconds, parameters)}
    if args.overheads:
        result["overheads"], _ = in_fresh_process(overheads, (args.overheads, args.threads))
        shares = result["overheads"]["shares"]
        cells = [[name, f"{value:.2%}", "met" if value < SHARE else "NOT met"] for name, value in shares.items()]
        show(f"{args.overheads}, shares of a step, goal below {SHARE:.0%}", ["", "share", ""], cells)
    result["versions"] = versions("torch", "transformers", "accelerate")
    print(json.dumps(result))
    return 0


def table(args: argparse.Namespace, contenders: list[str], seconds: Any, parameters: Any) -> list[dict[str, Any]]:
    """Print the speeds of each size and precision with the ratios to ours, and return them."""
    found = []
    for size in args.sizes:
        for precision in args.precisions:
            rate = {c: BATCH * LENGTH / statistics.median(seconds[size, precision, c]) for c in contenders}
            known = {"size": size, "precision": precision, "compiled": args.compiled, "tokens_per_second": rate}
            if "ours" in rate:
                known |= {"ratios": {c: rate["ours"] / r for c, r in rate.items()}}
                known |= {
                    "of_matmul_rate": in_fresh_process(utilization, (size, precision, args.threads, rate["ours"]))[0]
                }
            found.append(known)
            cells = [
                [c, f"{parameters[size, c]:,}", f"{r:,.0f}", *_ratio(c, known.get("ratios", {}))]
                for c, r in rate.items()
            ]
            used = f", ours uses {known['of_matmul_rate']:.0%} of the matmul rate" if "of_matmul_rate" in known else ""
            title = f"{size}, {precision}{', compiled' if args.compiled else ''}{used}"
            show(title, ["", "parameters", "tokens/s", "ours over it", "goal"], cells)
    return found


def _ratio(contender: str, ratios: dict[str, float]) -> list[str]:
    ratio, goal = ratios.get(contender), GOALS.get(contender)
    if ratio is None:
        return ["", ""]
    verdict = "" if goal is None else f"{goal}, {'met' if ratio >= goal else 'NOT met'}"
    return [f"{ratio:.2f}", verdict]


def utilization(what: tuple[str, str, int, float]) -> float:
    """Return the share of the matrix-product rate, measured here and now, that a token rate makes use of."""
    size, precision, threads, rate = what
    from llm360.environment import use_threads
    from llm360.flops import flops_per_token, peak_flops

    use_threads(threads)
    job = Job(contender="ours", size=size, precision=precision, steps=1, threads=threads, compiled=False, peer="")
    return rate * flops_per_token(llama(job), LENGTH) / peak_flops("cpu", precision)


def overheads(what: tuple[str, int]) -> dict[str, Any]:
    """Return what a chunk of steps costs beside its steps, as shares of them, at one size in fp32.

    The stall is what the loop waits for a checkpoint: the copy, and the writing of the one before if that is not done.
    """
    size, threads = what
    from llm360.environment import use_threads

    use_threads(threads)
    import dataclasses

    import torch

    import llm360.checkpoint as checkpoints
    from llm360.train.distributed import join
    from llm360.train.loop import train_steps
    from llm360.train.metrics import clock_lines, step_lines
    from llm360.train.optimizer import build_optimizer
    from llm360.train.record import write_jsonl
    from llm360.train.trainer import Trainer
    from llm360.train.writer import Writer

    job = Job(
        contender="ours", size=size, precision="fp32", steps=CHUNK_STEPS, threads=threads, compiled=False, peer=""
    )
    params = dataclasses.replace(phase_params(job), micro_batch_size=BATCH // 2)
    times: dict[str, list[float]] = {"step": [], "stall": [], "metrics": [], "noise": []}
    with join() as world, Writer() as writer, tempfile.TemporaryDirectory() as name:
        model = llama(job)
        trainer = Trainer(model, build_optimizer(model, params.optimizer), world, "fp32")
        batches = [torch.from_numpy(part) for part in rows(job).reshape(CHUNK_STEPS, BATCH, -1)]
        state = checkpoints.initial_state(1)
        for chunk in range(4):
            measured = list(train_steps(trainer, batches, params, first_step=0))
            times["step"] += [m.seconds for m in measured]
            begin = time.perf_counter()
            tensors = trainer.snapshot()
            folder = Path(name) / str(chunk)
            given = {"static": {}, "tensors": tensors, "state": state, "fields": {}}
            writer.submit(lambda folder=folder, given=given: checkpoints.write(folder, **given))
            times["stall"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            known = {"key": {}, "before": state, "step_tokens": BATCH * LENGTH}
            write_jsonl(folder.with_suffix(".m"), step_lines(measured, **known, batch_size=BATCH))
            write_jsonl(folder.with_suffix(".t"), clock_lines(measured, **known))
            times["metrics"].append(time.perf_counter() - begin)
            times["noise"].append(_noise(trainer, batches[0], params))
    step = CHUNK_STEPS * statistics.median(times["step"])
    shares = {"checkpoint stall": statistics.median(times["stall"][1:]) / step}
    shares["metric lines"] = statistics.median(times["metrics"]) / step
    shares["noise scale (a gradient norm a step)"] = CHUNK_STEPS * statistics.median(times["noise"]) / step
    shares["loader"] = CHUNK_STEPS * loading(size) / step
    return {"size": size, "step_ms": 1e3 * step / CHUNK_STEPS, "shares": shares}


def _noise(trainer: Any, batch: Any, params: Any) -> float:
    """Return the seconds of the gradient norm that the noise scale needs more."""
    (trainer.loss(trainer.model, batch[:1], reduction="mean")).backward()
    begin = time.perf_counter()
    trainer.grad_norm()
    taken = time.perf_counter() - begin
    trainer.optimizer.zero_grad(set_to_none=True)
    return taken


def loading(size: str) -> float:
    """Return the seconds that the rows of a step take from a chunk on disk, its hash checked."""
    from llm360.data.chunking.shards import create_array, write_shard
    from llm360.data.chunks import FORMAT, ChunkReader
    from llm360.files import write_manifest
    from llm360.train.batches import batches
    from llm360.train.distributed import join

    job = Job(contender="ours", size=size, precision="fp32", steps=CHUNK_STEPS, threads=1, compiled=False, peer="")
    tokens, params = rows(job).astype("uint16"), phase_params(job)
    with tempfile.TemporaryDirectory() as name, join() as world:
        array = Path(name) / "tokens.zarr"
        create_array(array, rows=len(tokens), shard_rows=len(tokens), row_tokens=LENGTH + 1, dtype=tokens.dtype)
        write_shard(array / "c/0/0", iter([tokens]), shard_rows=len(tokens))
        numbers = {"rows_per_chunk": len(tokens), "last_chunk_rows": None, "sequence_length": LENGTH, "dtype": "uint16"}
        write_manifest(Path(name), {"format": FORMAT, "first_chunk": 0, "chunks": 1, **numbers})
        taken = []
        for _ in range(5):
            begin = time.perf_counter()
            count = len(list(batches(ChunkReader(Path(name)), 0, params, world, begin=0)))
            taken.append((time.perf_counter() - begin) / count)
    return statistics.median(taken)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--litgpt", default="")
    parser.add_argument("--nanochat", default="")
    parser.add_argument("--overheads", default="20M", help="size of the shares beside a step; empty: leave them out")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
