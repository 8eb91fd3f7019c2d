from __future__ import annotations

import dataclasses
import os
import random
import shutil

import pytest
import torch

import llm360.checkpoint as checkpoints
from llm360.data.mixture import ChunkParams, Ingredient
from llm360.data.order import chunk_order, step_rows
from llm360.errors import DataError, IntegrityError, TrainingError
from llm360.files import entries, manifest_sha256, read_manifest
from llm360.model.build import build_model
from llm360.train.ledger import Ledger, chunks_seen, passes
from llm360.train.loop import OptimizerParams, build_optimizer
from llm360.train.phase import PhaseParams, RunFolders, run_phase
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
    seed=3,
    batch_size=3,
    micro_batch_size=2,
    optimizer=ADAMW,
    schedule=Schedule(kind="cosine", peak=1e-2, end=1e-3, warmup_steps=2, total_steps=8),
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Forking is safe only when torch has started no other threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def chunks(tmp_path_factory, make_chunks):
    folder = tmp_path_factory.mktemp("chunks") / "tiny"
    params = ChunkParams(
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
    return make_chunks(folder, params)


def initial(folder, family, tokenizer):
    common = {"hidden_size": 16, "intermediate_size": 24, "layers": 1, "heads": 2, "init_std": 0.02}
    config = common | {"vocab_size": len(tokenizer), "sequence_length": 16} | SIZES[family]
    model = build_model(family, config, seed=5)
    checkpoints.save(
        folder,
        model=model,
        tokenizer=tokenizer,
        optimizer=build_optimizer(model, ADAMW),
        state=checkpoints.initial_state(5),
        fields={"phase": "init", "parent": None},
    )
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory, tokenizer):
    return initial(tmp_path_factory.mktemp("init") / "tiny", "amber", tokenizer)


def train(root, start, chunks, params=PARAMS):
    folders = RunFolders(root / "checkpoints", root / "metrics", root / "ledger", root / "timings")
    run_phase(params, start=start, chunks=chunks, folders=folders, fields={"fingerprint": "f"})
    return folders


def content(root):
    return [e for e in entries(root) if not e.path.startswith("timings/")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, start, chunks):
    root = tmp_path_factory.mktemp("whole")
    train(root, start, chunks)
    return root


def in_child(work, dies_at):
    """Run ``work`` in a forked process that dies like kill -9 before its n-th change of the file system."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    count = 0

    def counted(change):
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


def test_killed_anywhere_and_run_again_it_ends_with_the_same_bytes(tmp_path, start, chunks, whole):
    draw, deaths = random.Random(11), 0
    for trial in range(6):
        root = tmp_path / str(trial)
        while not in_child(lambda root=root: train(root, start, chunks), draw.randint(0, 30)):
            deaths += 1
        train(root, start, chunks)
        assert content(root) == content(whole)
    assert deaths > 6


@pytest.mark.parametrize("lost", ["checkpoints/ckpt_001/model.safetensors", "metrics/chunk_002.jsonl", "ledger"])
def test_a_file_lost_in_the_middle_is_made_again(tmp_path, start, chunks, whole, lost):
    """DVC replaces files by links when it commits; a kill then can take one away."""
    shutil.copytree(whole, tmp_path / "run")
    (shutil.rmtree if (tmp_path / "run" / lost).is_dir() else os.remove)(tmp_path / "run" / lost)
    train(tmp_path / "run", start, chunks)
    assert content(tmp_path / "run") == content(whole)


def test_a_finished_phase_is_left_alone(whole, start, chunks):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    train(whole, start, chunks)
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


def test_crystal_resumes_exactly_too(tmp_path, tokenizer, chunks):
    first = initial(tmp_path / "init", "crystal", tokenizer)
    train(tmp_path / "a", first, chunks)
    assert not in_child(lambda: train(tmp_path / "b", first, chunks), 25)
    train(tmp_path / "b", first, chunks)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_checkpoint_i_follows_chunk_i_and_names_its_parent(whole, start, chunks):
    parent = start
    for i in range(CHUNKS):
        folder = whole / f"checkpoints/ckpt_{i:03d}"
        manifest = read_manifest(folder)
        assert manifest["parent"] == manifest_sha256(parent)
        assert manifest["chunk_files"][0]["sha256"] == chunks.entry(i).sha256
        assert manifest["step"] == 2 * (i + 1)
        assert manifest["tokens_seen"] == manifest["step"] * 3 * 16
        parent = folder


def test_the_ledger_tells_what_was_seen_and_what_filled_no_step(whole):
    events = Ledger(whole / "ledger/ledger.jsonl").events()
    assert chunks_seen(events, ckpt=2) == [0, 1, 2]
    assert [e["rows_unused"] for e in events if e["event"] == "chunk_finished"] == [1] * CHUNKS
    assert events[0]["seed"] == PARAMS.seed
    assert [e["event"] for e in events[:4]] == ["phase_started", "chunk_started", "chunk_finished", "checkpoint_saved"]


def test_the_ledger_gives_the_rows_of_every_step(tmp_path, start, chunks, monkeypatch):
    read = []

    def spied(order, *, step, batch_size):
        read.append(step_rows(order, step=step, batch_size=batch_size))
        return read[-1]

    monkeypatch.setattr("llm360.train.loop.step_rows", spied)
    folders = train(tmp_path, start, chunks)
    found = []
    for p in passes(Ledger(folders.ledger / "ledger.jsonl").events()):
        order = chunk_order(seed=p.seed, phase=p.phase, chunk=p.chunk, rows=p.rows + p.rows_unused)
        found += [order[list(p.positions(step))] for step in range(p.first_step, p.last_step + 1)]
    assert [r.tolist() for r in found] == [r.tolist() for r in read]


def test_the_next_phase_counts_its_own_steps_and_keeps_the_moments(tmp_path, whole, start, chunks):
    params = dataclasses.replace(PARAMS, phase="second")
    folders = train(tmp_path, whole / f"checkpoints/ckpt_{CHUNKS - 1:03d}", chunks, params)
    manifest = read_manifest(folders.checkpoints / "ckpt_000")
    assert (manifest["phase_step"], manifest["step"]) == (2, 2 * CHUNKS + 2)


def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path, start, chunks, whole):
    params = dataclasses.replace(PARAMS, micro_batch_size=3)
    train(tmp_path, start, chunks, params)
    a, b = (checkpoints.load_model(r / "checkpoints/ckpt_000") for r in (whole, tmp_path))
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tmp_path, start, chunks):
    params = dataclasses.replace(PARAMS, schedule=dataclasses.replace(PARAMS.schedule, peak=float("inf")))
    with pytest.raises(TrainingError, match=r"expected finite numbers; the last checkpoint is whole"):
        train(tmp_path, start, chunks, params)
    assert not (tmp_path / "checkpoints/ckpt_000").exists()


def test_a_batch_larger_than_a_chunk_is_refused(tmp_path, start, chunks):
    with pytest.raises(DataError, match="fewer rows than one batch"):
        train(tmp_path, start, chunks, dataclasses.replace(PARAMS, batch_size=8))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_resuming_from_an_altered_checkpoint_is_refused(tmp_path, start, chunks, name):
    train(tmp_path, start, chunks)
    last = tmp_path / f"checkpoints/ckpt_{CHUNKS - 2:03d}"
    (tmp_path / f"checkpoints/ckpt_{CHUNKS - 1:03d}/manifest.json").unlink()
    data = bytearray((last / name).read_bytes())
    data[len(data) // 2] ^= 1
    (last / name).write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=name):
        train(tmp_path, start, chunks)
