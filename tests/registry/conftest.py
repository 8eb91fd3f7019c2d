"""A tiny workspace: three checkpoints of two phases, their chunks and logs, written by the library itself."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from llm360.checkpoint import TrainState, rng_state, save
from llm360.data.chunking.shards import create_array, write_shard
from llm360.files import new_folder, read_manifest, sha256_bytes, write_bytes, write_manifest
from llm360.train.ledger import Ledger
from registry import Workspace, cli
from registry.index import write_index
from registry.workspace import chunk_files

SUITE = "toy-smoke"
PHASES = {"phase1": (0, 1), "phase2": (2, 2)}
ROWS, ROW_TOKENS, STEPS, SEED = 4, 9, 2, 7


def _tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(29))])}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")), unk_token="<unk>")


def _model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=8,
        )
    )  # fmt: skip


def _checkpoints(artifacts: Path) -> None:
    import torch

    model, tokenizer, parent = _model(), _tokenizer(), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for phase, (first, last) in PHASES.items():
        for ckpt in range(first, last + 1):
            model(input_ids=torch.full((1, 4), ckpt), labels=torch.full((1, 4), ckpt)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done, in_phase = STEPS * (ckpt + 1), STEPS * (ckpt - first + 1)
            state = TrainState(
                step=done, phase_step=in_phase, tokens_seen=done * 16, chunks_seen=ckpt + 1, chunk=ckpt,
                position=0, deferred=(), skipped=(), torch_rng=rng_state(),
            )  # fmt: skip
            fields = {"suite": SUITE, "phase": phase, "ckpt": ckpt, "parent": parent, "chunk_files": []}
            fields |= {"branch": None, "world": {"ranks": 1, "replicas": 1}}
            folder = artifacts / "checkpoints" / SUITE / phase / f"ckpt_{ckpt:03d}"
            parent = save(folder, model=model, tokenizer=tokenizer, optimizer=optimizer, state=state, fields=fields)


def _chunks(artifacts: Path) -> None:
    import numpy as np

    for phase, (first, last) in PHASES.items():
        count = last - first + 1
        with new_folder(artifacts / "chunks" / SUITE / phase) as folder:
            rows = (np.arange(count * ROWS * ROW_TOKENS).reshape(-1, ROW_TOKENS) % 32 + first).astype("uint16")
            create_array(
                folder / "tokens.zarr", rows=len(rows), shard_rows=ROWS, row_tokens=ROW_TOKENS, dtype=rows.dtype
            )
            for chunk in range(first, last + 1):
                shard, _, provenance = (folder / name for name in chunk_files(chunk, chunk - first))
                local = rows[(chunk - first) * ROWS :][:ROWS]
                write_shard(shard, iter([local]), shard_rows=ROWS)
                spans = [[{"document": f"d{chunk}", "start": 0, "end": ROW_TOKENS, "licence": "MIT"}]] * ROWS
                provenance.parent.mkdir(exist_ok=True)
                numbers = {"row": range(ROWS), "array_row": range(ROWS), "epoch": [0] * ROWS}
                pl.DataFrame({**numbers, "kind": ["book"] * ROWS, "spans": spans}).write_parquet(provenance)
            fields = {
                "format": "llm360-chunks/2",
                "suite": SUITE,
                "phase": phase,
                "tokenizer": SUITE,
                "tokenizer_sha256": "0" * 64,
                "first_chunk": first,
                "chunks": count,
                "rows_per_chunk": ROWS,
                "last_chunk_rows": None,
                "sequence_length": ROW_TOKENS - 1,
                "dtype": "uint16",
                "kinds_by_chunk": {"book": [ROWS] * count},
            }
            write_manifest(folder, fields)


def _metrics(artifacts: Path) -> None:
    for phase, (first, last) in PHASES.items():
        ledger = Ledger(artifacts / "ledgers" / SUITE / phase / "ledger.jsonl")
        ledger.record({"event": "phase_started", "suite": SUITE, "phase": phase, "seed": SEED})
        shards = {e["path"]: e["sha256"] for e in read_manifest(artifacts / "chunks" / SUITE / phase)["files"]}
        for chunk in range(first, last + 1):
            lines = [
                {"suite": SUITE, "phase": phase, "chunk": chunk, "step": STEPS * chunk + i, "phase_step": i,
                 "tokens_seen": 16 * i, "loss": 3.0, "grad_norm": 1.0, "learning_rate": 1e-3}
                for i in (1, 2)
            ]  # fmt: skip
            text = "".join(json.dumps(line) + "\n" for line in lines)
            write_bytes(artifacts / "metrics" / SUITE / phase / f"chunk_{chunk:03d}.jsonl", text.encode())
            before, done = STEPS * chunk, STEPS * (chunk + 1)
            ledger.record(
                {"event": "chunk_started", "chunk": chunk, "step": before, "batch_size": ROWS // STEPS,
                 "sha256": shards[chunk_files(chunk, chunk - first)[0]], "turn": "first"},
                {"event": "chunk_finished", "chunk": chunk, "ckpt": chunk, "step": done, "tokens_seen": 16 * done,
                 "steps": STEPS, "rows_unused": 0, "metrics_sha256": sha256_bytes(text.encode())},
                {"event": "checkpoint_saved", "ckpt": chunk, "step": done},
            )  # fmt: skip


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace, built once; tests get a copy."""
    root = tmp_path_factory.mktemp("workspace")
    (root / "dvc.yaml").write_text("stages: {}\n")
    _checkpoints(root / "artifacts")
    _chunks(root / "artifacts")
    _metrics(root / "artifacts")
    write_index(Workspace(root), SUITE)
    return root


@pytest.fixture
def workspace(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of the workspace, which is also the working directory."""
    root = tmp_path / "clone"
    shutil.copytree(built, root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("LLM360_HOME", raising=False)
    return Workspace(root)


@pytest.fixture
def ckpt_folder(workspace: Workspace) -> Path:
    """The folder of toy-smoke/ckpt-1."""
    return workspace.artifacts / "checkpoints" / SUITE / "phase1" / "ckpt_001"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; returns exit code, stdout and stderr."""

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["registry", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    return command


@pytest.fixture
def flip_bit() -> Callable[[Path], None]:
    """Change one bit in the middle of a file."""

    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return flip
