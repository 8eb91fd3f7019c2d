"""What the tests of many ranks run in each of them: ``laws`` in forks of the test, ``main`` under ``launch``."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

BATCH, LENGTH, VOCABULARY, STEPS = 8, 16, 51, 3
COMMON = {"hidden_size": 20, "intermediate_size": 26, "layers": 2, "heads": 2, "init_std": 0.02}
COMMON |= {"vocab_size": VOCABULARY, "sequence_length": LENGTH}
SIZES = {"amber": COMMON | {"rms_norm_eps": 1e-6, "rope_theta": 1e4}}
SIZES["crystal"] = COMMON | {"rotary_dim": 4, "layer_norm_eps": 1e-5, "embeddings_scale": 14.6}
SIZES["crystal"] |= {"output_alpha": 2.22, "width_scale": 0.5}
SHAPES = [(1,), (3, 5), (5,), (7, 2), (64, 3), (2, 3, 4)]


def build(family, world, *, checkpointing=False):
    import torch

    from llm360.model.build import build_model, parameter_groups

    model = build_model(family, SIZES[family], seed=5).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    world.shard(model)
    groups = parameter_groups(model, weight_decay=0.1, learning_rate=1e-2)
    return model, torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def train(model, optimizer, world, first_step=0):
    """Take steps of two or more backward passes each; return what each measured, and clip every gradient."""
    import torch

    from llm360.train.distributed import clip_gradients, grad_norm

    measured = []
    for step in range(first_step, first_step + STEPS):
        random = torch.Generator().manual_seed(step)
        batch = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=random)
        loss = 0.0
        for micro in batch[world.rows(BATCH)].split(1):
            logits = model(input_ids=micro[:, :-1], use_cache=False).logits.float().flatten(0, 1)
            mine = torch.nn.functional.cross_entropy(logits, micro[:, 1:].flatten(), reduction="sum")
            (mine / (BATCH * LENGTH)).backward()
            loss += mine.item() / (BATCH * LENGTH)
        norm = clip_gradients(world, model.parameters(), 0.1)
        measured.append([*world.sum(loss), norm, grad_norm(world, model.parameters())])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return measured


def state(model, optimizer, world):
    tensors = {}
    for name, p in model.named_parameters():
        tensors[name] = world.whole(p)
        tensors |= {f"{name}|{m}": world.whole(optimizer.state[p][m]) for m in ("exp_avg", "exp_avg_sq")}
    return tensors


def restore(model, optimizer, world, tensors):
    import torch

    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(world.place(tensors[name], p))
            moments = {m: world.place(tensors[f"{name}|{m}"], p) for m in ("exp_avg", "exp_avg_sq")}
            optimizer.state[p] = {"step": torch.tensor(float(STEPS)), **moments}


def tied(model):
    """Whether the head is still the embedding, as its configuration says."""
    same = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    return same == model.config.tie_word_embeddings


def sharded(tensors, world):
    import torch
    from torch.distributed.fsdp import fully_shard

    module = torch.nn.ParameterList([torch.nn.Parameter(t.clone()) for t in tensors])
    if world.mesh is not None:
        fully_shard(module, mesh=world.mesh)
    return list(module)


def round_trips(world):
    """Whether every tensor comes back from its parts, as torch cuts it and as ``place`` does."""
    import torch

    wholes = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in SHAPES]
    parts = sharded(wholes, world)
    placed = [world.place(whole.clone(), part) for whole, part in zip(wholes, parts, strict=True)]
    back = [(world.whole(a), world.whole(b)) for a, b in zip(parts, placed, strict=True)]
    with torch.no_grad():
        for part in (*parts, *placed):
            part.zero_()  # what was gathered before must not change
    return all(torch.equal(w, a) and torch.equal(w, b) for w, (a, b) in zip(wholes, back, strict=True))


def laws(folder, replicas=1, saved=None):
    """Measure both families in this world and leave their state, and what became of a ``saved`` one, in ``folder``."""
    from safetensors.torch import load_file, save_file

    from llm360.model.build import check_rope_fp32
    from llm360.train.distributed import join

    seen = {}
    with join(replicas=replicas) as world:
        for family in SIZES:
            model, optimizer = build(family, world)
            seen[family] = {"steps": train(model, optimizer, world), "tied": tied(model)}
            check_rope_fp32(model)
            mine = state(model, optimizer, world)
            if saved:
                restore(model, optimizer, world, load_file(saved / f"{family}.safetensors"))
                seen[family]["again"] = state(model, optimizer, world)
                seen[family]["next"] = train(model, optimizer, world, STEPS)
            if world.leads:
                folder.mkdir(exist_ok=True)
                save_file(mine, folder / f"{family}.safetensors")
                if saved:
                    save_file(seen[family].pop("again"), folder / f"{family}-again.safetensors")
        model, optimizer = build("amber", world, checkpointing=True)
        seen["checkpointing"] = train(model, optimizer, world)
        seen["round_trips"] = world.sum(float(round_trips(world)))
        seen["share"] = world.share({"rank": world.rank, "text": "é"})
        seen["sum"] = world.sum(1.0, 10.0**world.rank, 1e-9)
        world.barrier()
        leads = world.leads
    if leads:
        (folder / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    return 0


def join_and_fail():
    """Sum over the ranks that torchrun made; then rank 1 fails while rank 0 waits for it."""
    from llm360.errors import TrainingError
    from llm360.train.distributed import join

    with join() as world:
        (total,) = world.sum(world.rank + 1.0)
        if not world.leads:
            raise TrainingError(f"the sum is {total}")
        world.barrier()
    return 0


def ends(how, folder):
    """End in the way that a test of ``launch`` asks for."""
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"out {rank}\n")
    sys.stdout.flush()
    (Path(folder) / f"{rank}.pid").write_text(str(os.getpid()), encoding="utf-8")
    return WAYS[how](rank, Path(folder))


def told(rank, folder):
    sys.stderr.write(f"error: bad thing {rank}\n")
    raise SystemExit(3)


def last_tells(rank, folder):
    if rank:
        told(rank, folder)
    time.sleep(0.3)
    raise ConnectionError("peer is gone")


def bug(rank, folder):
    if rank:
        time.sleep(0.3)
    raise ZeroDivisionError(f"of rank {rank}")


def killed(rank, folder):
    if rank:
        (folder / "dying").touch()
        os.kill(os.getpid(), 9)
    while not (folder / "dying").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    raise ConnectionError("peer is gone")


def saves(rank, folder):
    """Wait for a signal; rank 0 then needs longer than the others, as the one who writes. A second signal is fatal."""
    import signal

    asked = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(1) if asked else asked.append(1))
    (folder / f"{rank}.ready").touch()
    while not asked:
        time.sleep(0.02)
    time.sleep(0.0 if rank else 0.5)
    (folder / f"{rank}.saved").touch()
    return 143


WAYS = {"well": lambda *_: 0, "told": told, "last_tells": last_tells, "bug": bug, "killed": killed, "saves": saves}


def main(argv):
    return {"join": join_and_fail, "ends": ends}[argv[0]](*argv[1:])
