"""A workspace with a run that was really trained: two phases, in the first a chunk that fails, and a branch."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

import llm360.checkpoint as checkpoints
from llm360.code import TRAINING, code_sha256
from llm360.data.chunks import ChunkReader
from llm360.data.mixture import ChunkParams, Ingredient
from llm360.environment import environment, use_threads
from llm360.files import manifest_sha256, sha256_file, write_json
from llm360.model.build import build_model
from llm360.replay.replay import settings_kept
from llm360.train.distributed import World
from llm360.train.optimizer import OptimizerParams, build_optimizer
from llm360.train.params import Compute, PhaseParams
from llm360.train.phase import run_phase
from llm360.train.record import RunFolders
from llm360.train.schedule import Schedule
from registry import Workspace
from registry.index import write_index

SUITE, BRANCH = "toy-run", "toy-branch"
ADAMW = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
SIZES = {"hidden_size": 16, "intermediate_size": 24, "layers": 1, "heads": 2, "init_std": 0.02, "rms_norm_eps": 1e-6}
ONE = PhaseParams(
    suite=SUITE,
    phase="one",
    folder=f"{SUITE}/one",
    start=f"init/{SUITE}",
    branch=None,
    seed=3,
    batch_size=3,
    micro_batch_size=2,
    compute=Compute(precision="fp32", compile=False, activation_checkpointing=False),
    on_nonfinite="defer",
    planted_nan=(1,),  # at its second step, so a step's state may lie before the fault
    optimizer=ADAMW,
    schedule=Schedule(kind="cosine", peak=1e-2, end=1e-3, warmup_steps=2, total_steps=12, begin=0),
)
TWO = dataclasses.replace(
    ONE, phase="two", folder=f"{SUITE}/two", start=f"checkpoints/{SUITE}/one/ckpt_002", planted_nan=()
)
AWAY = dataclasses.replace(
    ONE,
    suite=BRANCH,
    phase="away",
    folder=BRANCH,
    start=f"checkpoints/{SUITE}/one/ckpt_001",
    branch=f"{SUITE}/ckpt-1",
    seed=8,
    planted_nan=(),
)


def make_init(folder: Path, tokenizer, tokenizer_folder: Path) -> None:
    config = SIZES | {"vocab_size": len(tokenizer), "sequence_length": 16, "rope_theta": 1e4}
    model = build_model("amber", config, seed=5)
    tokenizer_sha256 = sha256_file(tokenizer_folder / "tokenizer.json")
    checkpoints.save(
        folder,
        model=model,
        tokenizer=tokenizer,
        optimizer=build_optimizer(model, ADAMW),
        state=checkpoints.initial_state(5),
        fields={"suite": SUITE, "phase": "init", "parent": None, "tokenizer_sha256": tokenizer_sha256},
    )


def make_phase(artifacts: Path, params: PhaseParams, *, first: int, count: int, make_chunks) -> None:
    made = ChunkParams(
        suite=params.suite,
        phase=params.phase,
        folder=params.folder,
        tokenizer=SUITE,
        sequence_length=16,
        first_chunk=first,
        chunks=count,
        rows_per_chunk=10,  # three steps of three rows, one row that fills no step
        validation_rows=1,
        seed=first,
        mixture={"arxiv": Ingredient(weight=1.0, part="all", epochs=1)},
    )
    chunks: ChunkReader = make_chunks(artifacts / "chunks" / params.folder, made)
    recipe = {
        "params": dataclasses.asdict(params) | {"planted_nan": list(params.planted_nan)},
        "chunks": manifest_sha256(chunks.folder),
        "start": manifest_sha256(artifacts / params.start),
        "code": code_sha256(*TRAINING),
        "environment": environment(),
    }
    kinds = ("checkpoints", "metrics", "ledgers", "timings", "work")
    folders = RunFolders(*[artifacts / kind / params.folder for kind in kinds])
    write_json(folders.checkpoints / "fingerprint.json", recipe)
    alone = World(0, 1, 1, torch.device("cpu"), None)
    run_phase(params, start=artifacts / params.start, chunks=chunks, folders=folders, recipe=recipe, world=alone)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory, tokenizer, tokenizer_folder, make_chunks) -> Path:
    root = tmp_path_factory.mktemp("trained")
    (root / "dvc.yaml").write_text("stages: {}\n")
    artifacts = root / "artifacts"
    make_init(artifacts / "init" / SUITE, tokenizer, tokenizer_folder)
    with settings_kept():
        use_threads(1)
        make_phase(artifacts, ONE, first=0, count=3, make_chunks=make_chunks)
        make_phase(artifacts, TWO, first=3, count=2, make_chunks=make_chunks)
        make_phase(artifacts, AWAY, first=2, count=1, make_chunks=make_chunks)
    for suite in (SUITE, BRANCH):
        write_index(Workspace(root), suite)
    return root


@pytest.fixture
def trained(trained_once, tmp_path, monkeypatch) -> Path:
    """The artifacts of a copy of the workspace, which is also the working directory."""
    root = tmp_path / "clone"
    shutil.copytree(trained_once, root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("LLM360_HOME", raising=False)
    return root / "artifacts"
