"""A tiny workspace that two suites were trained in by the library itself: one of one phase, one of two."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import llm360.checkpoint as checkpoints
from llm360.data.chunks import ChunkReader
from llm360.data.mixture import ChunkParams, Ingredient
from llm360.data.tokens.encoder import prove_encoder
from llm360.evaluation.benchmarks import BenchmarkParams, build
from llm360.files import manifest_sha256, read_manifest, write_json, write_manifest
from llm360.model.build import build_model
from llm360.train.distributed import join
from llm360.train.optimizer import OptimizerParams, build_optimizer
from llm360.train.params import Compute, PhaseParams
from llm360.train.phase import run_phase
from llm360.train.record import RunFolders
from llm360.train.schedule import Schedule
from registry import Workspace
from registry.index import write_index

LENGTH, ROWS = 64, 8
SHARED = {"hidden_size": 16, "intermediate_size": 32, "layers": 1, "heads": 2, "vocab_size": 384, "init_std": 0.05}
AMBER = {**SHARED, "sequence_length": LENGTH, "rms_norm_eps": 1e-6, "rope_theta": 1e4}
MUP = {"embeddings_scale": 14.6, "output_alpha": 2.22, "width_scale": 0.5}
CRYSTAL = {**SHARED, **MUP, "sequence_length": LENGTH, "layer_norm_eps": 1e-5, "rotary_dim": 2}
PHASES = {"amber-toy": [("pretrain", 0, 3)], "crystal-toy": [("phase1", 0, 2), ("phase2", 2, 1)]}  # name, first, chunks
OPTIMIZER = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)


def _chunks(artifacts: Path, suite: str, folder: str, phase: tuple[str, int, int], make_chunks) -> ChunkReader:
    kinds = [p.name for p in sorted((artifacts / "sources").iterdir())]
    params = ChunkParams(
        suite=suite, phase=phase[0], folder=folder, tokenizer=suite, sequence_length=LENGTH, first_chunk=phase[1],
        chunks=phase[2], rows_per_chunk=ROWS, validation_rows=2, seed=1,
        mixture={kind: Ingredient(weight=1.0, part="all", epochs=1) for kind in kinds},
    )  # fmt: skip
    reader = make_chunks(artifacts / "chunks" / folder, params)
    hashes = {kind: manifest_sha256(artifacts / "sources" / kind) for kind in kinds}
    made_from = {"sources": hashes, "tokenizer_sha256": manifest_sha256(artifacts / "tokenizers" / suite)}
    write_manifest(reader.folder, {**reader.manifest, **made_from})  # as the stage does
    return ChunkReader(reader.folder)


def _train(artifacts: Path, suite: str, make_chunks, tokenizer) -> None:
    family, config = ("amber", AMBER) if suite == "amber-toy" else ("crystal", CRYSTAL)
    start = artifacts / "init" / suite
    blank = checkpoints.initial_state(1)
    fields = {"suite": suite, "phase": "init", "parent": None}
    fields |= {"tokenizer_sha256": manifest_sha256(artifacts / "tokenizers" / suite)}
    model = build_model(family, config, seed=1)
    optimizer = build_optimizer(model, OPTIMIZER)
    checkpoints.save(start, model=model, tokenizer=tokenizer, optimizer=optimizer, state=blank, fields=fields)
    for phase in PHASES[suite]:
        folder = suite if len(PHASES[suite]) == 1 else f"{suite}/{phase[0]}"
        reader = _chunks(artifacts, suite, folder, phase, make_chunks)
        params = PhaseParams(
            suite=suite, phase=phase[0], folder=folder, start="", branch=None, seed=1, batch_size=4, micro_batch_size=4,
            compute=Compute(precision="fp32", compile=False, activation_checkpointing=False), on_nonfinite="stop",
            planted_nan=(), optimizer=OPTIMIZER,
            schedule=Schedule(kind="cosine", peak=3e-3, end=3e-4, warmup_steps=1, total_steps=6, begin=0),
        )  # fmt: skip
        kinds = ("checkpoints", "metrics", "ledgers", "timings", "work")
        folders = RunFolders(*[artifacts / kind / folder for kind in kinds])
        with join() as world:
            run_phase(params, start=start, chunks=reader, folders=folders, recipe={"environment": {}}, world=world)
        start = folders.checkpoints / f"ckpt_{phase[1] + phase[2] - 1:03d}"


def _evaluate(artifacts: Path, suite: str, ckpt: int, folder: Path) -> None:
    row = {
        "suite": suite,
        "ckpt": ckpt,
        "manifest_sha256": manifest_sha256(folder),
        "task": "arc_challenge",
        "shots": 25,
    }
    row |= {"limit": 50, "samples": 50}
    rows = [row | {"metric": m, "value": v + ckpt / 100, "stderr": 0.05} for m, v in (("acc", 0.2), ("acc_norm", 0.25))]
    path = artifacts / "evaluation" / "arc_challenge" / suite / f"ckpt_{ckpt:03d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)


def _source(artifacts: Path, kind: str, folder: Path) -> None:
    """Copy a kind's documents, with what the report reads of a manifest."""
    package = {"name": "python-standard-library", "version": "3.11", "origin": "the interpreter"}
    source = {"name": "stdlib", "licence": "PSF-2.0", "documents": 4, "bytes": 1_250_000, "packages": [package]}
    fields = {"kind": kind, "sources": [source], "documents": 4, "bytes": 1_250_000}
    shutil.copytree(folder, artifacts / "sources" / kind)
    write_manifest(artifacts / "sources" / kind, {**read_manifest(folder), **fields})


def _tokenizers(folder: Path, tokenizer) -> None:
    """Write the one tokenizer for every suite, with its proof, so that no test has to prove it again."""
    first, *others = [folder / suite for suite in PHASES]
    tokenizer.save_pretrained(first)
    prove_encoder(first, documents=())
    write_manifest(first, {})
    for other in others:
        shutil.copytree(first, other)


def _finetuned(artifacts: Path) -> None:
    loss = {"before": {"loss": 5.5}, "after": {"loss": 4.25}}
    margins = {
        "before": {"rewards/margins": 0.0, "logps/chosen": -84.5},
        "after": {"rewards/margins": 0.125, "logps/chosen": -138.75},
    }
    fields = {"suite": "amber-safe-toy", "base": {"suite": "amber-toy", "ckpt": 1}, "sft": loss, "dpo": margins}
    write_json(artifacts / "metrics" / "amber-safe-toy" / "summary.json", fields)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, sources, make_chunks, tokenizer) -> Path:
    """The workspace, built once; tests get a copy."""
    root = tmp_path_factory.mktemp("trained")
    (root / "dvc.yaml").write_text("stages: {}\n")
    artifacts = root / "artifacts"
    build(artifacts / "benchmarks", BenchmarkParams(source="local"))
    for kind, folder in sources.items():
        _source(artifacts, kind, folder)
    _tokenizers(artifacts / "tokenizers", tokenizer)
    for suite in PHASES:
        _train(artifacts, suite, make_chunks, tokenizer)
        write_index(Workspace(root), suite)
        for folder in sorted((artifacts / "checkpoints" / suite).rglob("ckpt_*")):
            _evaluate(artifacts, suite, int(folder.name[-3:]), folder)
    _finetuned(artifacts)
    return root


@pytest.fixture
def workspace(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of the workspace, which is also the working directory."""
    root = tmp_path / "clone"
    shutil.copytree(trained, root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("LLM360_HOME", raising=False)
    return Workspace(root)
