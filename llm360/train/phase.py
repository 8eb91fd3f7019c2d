"""One pretraining phase: from a checkpoint over the chunks to a checkpoint after each, exact under any kill."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm360.checkpoint as checkpoints
from llm360.checkpoint import TrainState
from llm360.config import require_positive
from llm360.data.chunks import ChunkReader
from llm360.data.order import chunk_order, steps_in_chunk
from llm360.errors import DataError
from llm360.files import is_whole, manifest_sha256, read_manifest, remove_partial, sha256_file, verify, write_bytes
from llm360.model.build import check_rope_fp32
from llm360.progress import say, track
from llm360.train.ledger import Ledger
from llm360.train.loop import OptimizerParams, StepMetrics, build_optimizer, train_chunk
from llm360.train.schedule import Schedule

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseParams:
    """The decisions of a phase. folder is ``<suite>`` or ``<suite>/<phase>``; start is the checkpoint it goes on from.

    seed orders the rows inside each chunk; batch sizes are in rows.
    """

    suite: str
    phase: str
    folder: str
    start: str
    seed: int
    batch_size: int
    micro_batch_size: int
    optimizer: OptimizerParams
    schedule: Schedule

    def __post_init__(self) -> None:
        require_positive(self, "batch_size", "micro_batch_size")


@dataclasses.dataclass(frozen=True)
class RunFolders:
    """Where a phase writes: one folder each, all of them below the artifacts."""

    checkpoints: Path
    metrics: Path
    ledger: Path
    timings: Path


@dataclasses.dataclass
class _Run:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    optimizer: torch.optim.AdamW
    state: TrainState
    parent: str  # sha256 of the manifest of the checkpoint that the state came from


def ckpt_name(ckpt: int) -> str:
    """Return a checkpoint's folder name: three digits, as Amber's branches."""
    return f"ckpt_{ckpt:03d}"


def run_phase(
    params: PhaseParams, *, start: Path, chunks: ChunkReader, folders: RunFolders, fields: Mapping[str, Any]
) -> None:
    """Train over all chunks of the phase; goes on after the last whole checkpoint when there is one.

    ``fields`` go into every checkpoint's manifest (fingerprint, environment).
    """
    first, count = chunks.manifest["first_chunk"], chunks.manifest["chunks"]
    remove_partial(folders.checkpoints)
    done = _finished(folders, first, count)
    ledger = Ledger(folders.ledger / "ledger.jsonl")
    begun = {"suite": params.suite, "phase": params.phase, "seed": params.seed, "start": manifest_sha256(start)}
    ledger.record({"event": "phase_started", **begun, **fields})
    ledger.record(*[e for c in range(first, first + done) for e in _events(params, folders, chunks, c)])
    if done == count:
        return
    run = _restore(params, folders.checkpoints / ckpt_name(first + done - 1) if done else start)
    if done:
        say(f"{params.folder}: {done} of {count} checkpoints are whole; going on after {ckpt_name(first + done - 1)}")
    todo = range(first + done, first + count)
    for chunk in track(todo, label=f"pretrain {params.folder}", total=count, done=done):
        _train_one(run, params, chunks, folders, chunk, fields)
        ledger.record(*_events(params, folders, chunks, chunk))


def _finished(folders: RunFolders, first: int, count: int) -> int:
    """Return how many chunks from the first on have a whole checkpoint and metrics, without a gap."""
    for done in range(count):
        checkpoint = folders.checkpoints / ckpt_name(first + done)
        if not (is_whole(checkpoint) and metrics_path(folders, first + done).is_file()):
            return done
    return count


def metrics_path(folders: RunFolders, chunk: int) -> Path:
    """Return the file of a chunk's metrics."""
    return folders.metrics / f"chunk_{chunk:03d}.jsonl"


def _restore(params: PhaseParams, folder: Path) -> _Run:
    verify(folder)
    model = checkpoints.load_model(folder, check=False).train()
    check_rope_fp32(model)
    optimizer = build_optimizer(model, params.optimizer)
    checkpoints.restore_optimizer(folder, model, optimizer)
    state = TrainState.read(folder)
    if read_manifest(folder)["phase"] != params.phase:
        state = dataclasses.replace(state, phase_step=0)
    checkpoints.set_rng_state(state.torch_rng)
    return _Run(model, checkpoints.load_tokenizer(folder), optimizer, state, manifest_sha256(folder))


def _train_one(
    run: _Run, params: PhaseParams, chunks: ChunkReader, folders: RunFolders, chunk: int, fields: Mapping[str, Any]
) -> None:
    tokens = chunks.tokens(chunk)
    steps = train_chunk(
        run.model,
        run.optimizer,
        tokens,
        order=chunk_order(seed=params.seed, phase=params.phase, chunk=chunk, rows=len(tokens)),
        first_step=run.state.phase_step,
        batch_size=params.batch_size,
        micro_batch_size=params.micro_batch_size,
        schedule=params.schedule,
        clip_norm=params.optimizer.clip_norm,
    )
    measured = list(steps)
    step_tokens = params.batch_size * (tokens.shape[1] - 1)
    _write_metrics(params, folders, chunk, run.state, measured, step_tokens)
    run.state = _advance(run.state, chunk, len(measured), step_tokens)
    run.parent = checkpoints.save(
        folders.checkpoints / ckpt_name(chunk),
        model=run.model,
        tokenizer=run.tokenizer,
        optimizer=run.optimizer,
        state=run.state,
        fields=_lineage(params, chunks, chunk, run.parent) | dict(fields),
    )


def _advance(state: TrainState, chunk: int, steps: int, step_tokens: int) -> TrainState:
    if not steps:
        raise DataError(f"chunk {chunk} holds fewer rows than one batch; expected at least one step: lower batch_size")
    return TrainState(
        step=state.step + steps,
        phase_step=state.phase_step + steps,
        tokens_seen=state.tokens_seen + steps * step_tokens,
        chunks_seen=state.chunks_seen + 1,
        chunk=chunk,
        torch_rng=checkpoints.rng_state(),
    )


def _lineage(params: PhaseParams, chunks: ChunkReader, chunk: int, parent: str) -> dict[str, Any]:
    entry = dataclasses.asdict(chunks.entry(chunk))
    return {"suite": params.suite, "phase": params.phase, "ckpt": chunk, "parent": parent, "chunk_files": [entry]}


def _write_metrics(
    params: PhaseParams,
    folders: RunFolders,
    chunk: int,
    before: TrainState,
    measured: list[StepMetrics],
    step_tokens: int,
) -> None:
    lines, clock = [], []
    for i, step in enumerate(measured, start=1):
        key = {"suite": params.suite, "phase": params.phase, "chunk": chunk, "step": before.step + i}
        numbers = dataclasses.asdict(step)
        seconds = numbers.pop("seconds")
        seen = {"phase_step": before.phase_step + i, "tokens_seen": before.tokens_seen + i * step_tokens}
        lines.append(key | seen | numbers)
        clock.append(key | {"seconds": seconds, "tokens_per_second": step_tokens / seconds})
    write_jsonl(folders.timings / f"chunk_{chunk:03d}.jsonl", clock)
    write_jsonl(metrics_path(folders, chunk), lines)


def write_jsonl(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write one JSON object a line, by rename."""
    write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _events(params: PhaseParams, folders: RunFolders, chunks: ChunkReader, chunk: int) -> list[dict[str, Any]]:
    """Return the ledger's events of a finished chunk, all of them read from what is on disk."""
    folder = folders.checkpoints / ckpt_name(chunk)
    manifest, entry = read_manifest(folder), chunks.entry(chunk)
    steps = steps_in_chunk(rows=chunks.rows(chunk), batch_size=params.batch_size)
    key = {"chunk": chunk, "step": manifest["step"] - steps}
    unused = chunks.rows(chunk) - steps * params.batch_size
    metrics = sha256_file(metrics_path(folders, chunk))
    after = {"chunk": chunk, "step": manifest["step"], "tokens_seen": manifest["tokens_seen"]}
    saved = {"ckpt": chunk, "step": manifest["step"], "manifest_sha256": manifest_sha256(folder)}
    return [
        {"event": "chunk_started", **key, "batch_size": params.batch_size, "sha256": entry.sha256},
        {"event": "chunk_finished", **after, "steps": steps, "rows_unused": unused, "metrics_sha256": metrics},
        {"event": "checkpoint_saved", **saved},
    ]
