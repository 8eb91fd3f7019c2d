"""A tiny run: four chunks of two steps each, a model of a few thousand parameters, trained by the library itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import llm360.checkpoint as checkpoints
from llm360.data.chunks import ChunkReader
from llm360.data.mixture import ChunkParams, Ingredient
from llm360.files import entries, sha256_file
from llm360.model.build import build_model
from llm360.train.distributed import World
from llm360.train.optimizer import OptimizerParams, build_optimizer
from llm360.train.params import Compute, PhaseParams
from llm360.train.phase import run_phase
from llm360.train.record import RunFolders
from llm360.train.schedule import Schedule

CHUNKS = 4
SIZES = {"amber": {"rms_norm_eps": 1e-6, "rope_theta": 1e4}}
SIZES["crystal"] = {"rotary_dim": 4, "layer_norm_eps": 1e-5, "embeddings_scale": 14.6}
SIZES["crystal"] |= {"output_alpha": 2.22, "width_scale": 0.5}
ADAMW = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
PARAMS = PhaseParams(
    suite="tiny",
    phase="pretrain",
    folder="tiny",
    start="init/tiny",
    branch=None,
    seed=3,
    batch_size=3,
    micro_batch_size=2,
    compute=Compute(precision="fp32", compile=False, activation_checkpointing=False),
    on_nonfinite="stop",
    planted_nan=(),
    optimizer=ADAMW,
    schedule=Schedule(kind="cosine", peak=1e-2, end=1e-3, warmup_steps=2, total_steps=8, begin=0),
)
ALONE = World(0, 1, 1, torch.device("cpu"), None)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Forking is safe only when torch has started no other threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def params() -> PhaseParams:
    return PARAMS


@pytest.fixture(scope="session")
def alone() -> World:
    return ALONE


@pytest.fixture(scope="session")
def chunk_params() -> ChunkParams:
    return ChunkParams(
        suite="tiny",
        phase="pretrain",
        folder="tiny",
        tokenizer="tiny",
        sequence_length=16,
        first_chunk=0,
        chunks=CHUNKS,
        rows_per_chunk=7,  # two steps of three rows, one row that fills no step
        validation_rows=1,
        seed=1,
        mixture={"arxiv": Ingredient(weight=1.0, part="all", epochs=1)},
    )


@pytest.fixture(scope="session")
def chunks(tmp_path_factory, make_chunks, chunk_params) -> ChunkReader:
    return make_chunks(tmp_path_factory.mktemp("chunks") / "tiny", chunk_params)


@pytest.fixture(scope="session")
def initial(tokenizer, tokenizer_folder) -> Callable[..., Path]:
    """Return a function that writes a family's first checkpoint into a folder."""

    def write(folder: Path, family: str, **changed: object) -> Path:
        common = {"hidden_size": 16, "intermediate_size": 24, "layers": 1, "heads": 2, "init_std": 0.02}
        config = common | {"vocab_size": len(tokenizer), "sequence_length": 16} | SIZES[family]
        model = build_model(family, config, seed=5)
        fields = {"suite": "tiny", "phase": "init", "parent": None}
        fields |= {"tokenizer_sha256": sha256_file(tokenizer_folder / "tokenizer.json")} | changed
        checkpoints.save(
            folder,
            model=model,
            tokenizer=tokenizer,
            optimizer=build_optimizer(model, ADAMW),
            state=checkpoints.initial_state(5),
            fields=fields,
        )
        return folder

    return write


@pytest.fixture(scope="session")
def start(tmp_path_factory, initial) -> Path:
    return initial(tmp_path_factory.mktemp("init") / "tiny", "amber")


@pytest.fixture(scope="session")
def train(chunks, start) -> Callable[..., RunFolders]:
    """Return a function that runs the phase below a folder; keywords replace parts of its parameters."""

    def run(root: Path, *, first: Path = start, reader: ChunkReader = chunks, **changed: object) -> RunFolders:
        folders = RunFolders(*[root / name for name in ("checkpoints", "metrics", "ledger", "timings", "work")])
        recipe = {"params": "tiny", "environment": {"torch": torch.__version__}}
        params = dataclasses.replace(PARAMS, **changed)
        run_phase(params, start=first, chunks=reader, folders=folders, recipe=recipe, world=ALONE)
        return folders

    return run


@pytest.fixture(scope="session")
def content() -> Callable[[Path], list]:
    """Return a function that lists a run's files with their hashes, but those of which a clock decides."""
    return lambda root: [e for e in entries(root) if not e.path.startswith(("timings/", "work/"))]


@pytest.fixture(scope="session")
def whole(tmp_path_factory, train) -> Path:
    """A run that was never killed."""
    root = tmp_path_factory.mktemp("whole")
    train(root)
    return root


@pytest.fixture(scope="session")
def in_child() -> Callable[..., bool]:
    """Return a function that runs work in a fork which dies like kill -9 before its n-th change of the file system."""

    def run(work: Callable[[], object], dies_at: int) -> bool:
        if child := os.fork():
            return os.waitpid(child, 0)[1] == 0
        count = 0

        def counted(change: Callable) -> Callable:
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count > dies_at:
                    os._exit(9)
                return change(*args, **kwargs)

            return call

        os.replace, os.fsync, os.mkdir = counted(os.replace), counted(os.fsync), counted(os.mkdir)
        work()
        os._exit(0)

    return run
