"""What a run leaves on disk: for each finished pass its metrics, its checkpoint and, last, its events in the ledger."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llm360.checkpoint as checkpoints
from llm360.checkpoint import Failure, Tensors, TrainState
from llm360.data.chunks import ChunkReader
from llm360.files import is_whole, manifest_sha256, read_manifest, sha256_file, write_bytes
from llm360.flops import Meter
from llm360.train.batches import step_count
from llm360.train.ledger import Ledger
from llm360.train.loop import StepMetrics
from llm360.train.metrics import clock_lines, step_lines
from llm360.train.params import PhaseParams
from llm360.train.turns import Progress, Turn


@dataclasses.dataclass(frozen=True)
class RunFolders:
    """Where a phase writes: one folder each. ``work`` holds what is of no use once the phase has ended."""

    checkpoints: Path
    metrics: Path
    ledger: Path
    timings: Path
    work: Path

    def checkpoint(self, ckpt: int) -> Path:
        """Return a checkpoint's folder: three digits, as Amber's branches."""
        return self.checkpoints / f"ckpt_{ckpt:03d}"

    def log(self, ckpt: int) -> Path:
        """Return the metrics of the steps that led to a checkpoint."""
        return self.metrics / f"chunk_{ckpt:03d}.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passed:
    """One pass over a chunk, or its beginning: where the run stood before it and stands now, and each step."""

    turn: Turn
    before: TrainState
    state: TrainState
    measured: Sequence[StepMetrics]

    @property
    def whole(self) -> bool:
        """Whether the chunk was read to its end."""
        return self.state.position == 0

    @property
    def skipped_steps(self) -> list[int]:
        """The steps, counted from 1 over the suite, that were not finite and left the weights as they were."""
        return [step for step, m in enumerate(self.measured, start=self.before.step + 1) if not m.finite]


def advance(state: TrainState, turn: Turn, measured: Sequence[StepMetrics], *, steps: int, tokens: int) -> TrainState:
    """Return where a run stands after ``measured`` steps of ``tokens`` each, from the chunk's start on."""
    taken, whole = len(measured), len(measured) == steps
    return dataclasses.replace(
        state,
        step=state.step + taken,
        phase_step=state.phase_step + taken,
        tokens_seen=state.tokens_seen + taken * tokens,
        chunks_seen=state.chunks_seen + whole,
        chunk=turn.chunk if whole else state.chunk,
        position=0 if whole else taken,
        torch_rng=checkpoints.rng_state(),
    )


def progress_of(state: TrainState, chunks: ChunkReader) -> Progress:
    """Return where a phase over ``chunks`` stands."""
    first, count = chunks.manifest["first_chunk"], chunks.manifest["chunks"]
    return Progress(
        first=first,
        count=count,
        finished=state.chunks_seen - first,
        deferred=state.deferred,
        skipped=state.skipped,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorder:
    """Writes a phase's files. ``fields`` go into every checkpoint's manifest, ``static`` into its folder."""

    params: PhaseParams
    chunks: ChunkReader
    folders: RunFolders
    start: Path
    fields: Mapping[str, Any]
    static: Mapping[str, bytes]
    meter: Meter | None = None

    def parent(self, ckpt: int) -> Path:
        """Return the folder of the checkpoint before one."""
        return self.start if ckpt == self.chunks.manifest["first_chunk"] else self.folders.checkpoint(ckpt - 1)

    def finished(self) -> int:
        """Return how many checkpoints of the phase are whole, with their metrics, without a gap."""
        first, count = self.chunks.manifest["first_chunk"], self.chunks.manifest["chunks"]
        for done in range(count):
            if not (is_whole(self.folders.checkpoint(first + done)) and self.folders.log(first + done).is_file()):
                return done
        return int(count)

    def write(self, ledger: Ledger, passed: Passed, tensors: Tensors) -> None:
        """Write a finished pass: metrics, checkpoint, events, in this order; the parent's files must be there."""
        ckpt = passed.before.chunks_seen
        key = {"suite": self.params.suite, "phase": self.params.phase, "chunk": passed.turn.chunk}
        step_tokens = self.params.batch_size * self.chunks.manifest["sequence_length"]
        known = {"key": key, "before": passed.before, "step_tokens": step_tokens}
        clock = clock_lines(passed.measured, **known, meter=self.meter)
        write_jsonl(self.folders.timings / self.folders.log(ckpt).name, clock)
        lines = step_lines(passed.measured, **known, batch_size=self.params.batch_size)
        write_jsonl(self.folders.log(ckpt), lines)
        self.checkpoint(self.folders.checkpoint(ckpt), self.parent(ckpt), passed, tensors)
        ledger.record(*self.events(ckpt))

    def checkpoint(self, folder: Path, parent: Path, passed: Passed, tensors: Tensors, **more: bytes) -> None:
        """Write the checkpoint of a pass, or of its beginning."""
        entry = dataclasses.asdict(self.chunks.entry(passed.turn.chunk))
        lineage = {"suite": self.params.suite, "phase": self.params.phase, "ckpt": passed.before.chunks_seen}
        lineage |= {"parent": manifest_sha256(parent), "branch": self.params.branch, "chunk_files": [entry]}
        lineage |= {"skipped_steps": passed.skipped_steps}
        tokenizer = {"tokenizer_sha256": self.chunks.manifest["tokenizer_sha256"]}
        fields = lineage | tokenizer | dict(self.fields)
        static = {**self.static, **more}
        checkpoints.write(folder, static=static, tensors=tensors, state=passed.state, fields=fields)

    def events(self, ckpt: int) -> list[dict[str, Any]]:
        """Return the ledger's events between two checkpoints, all of them read from what is on disk."""
        folder, parent = self.folders.checkpoint(ckpt), self.parent(ckpt)
        before = of_phase(TrainState.read(parent), parent, self.params)
        found = self._world_changed(ckpt, folder, parent)
        for turn, failure in progress_of(before, self.chunks).until(TrainState.read(folder)):
            found.append(self._started(turn, before.step))
            found += [_failed(turn, failure)] if failure else self._finished(ckpt, folder, turn)
        return found

    def _started(self, turn: Turn, step: int) -> dict[str, Any]:
        sha256 = self.chunks.entry(turn.chunk).sha256
        known = {"batch_size": self.params.batch_size, "sha256": sha256, "turn": turn.kind}
        return {"event": "chunk_started", "chunk": turn.chunk, "step": step, **known}

    def _finished(self, ckpt: int, folder: Path, turn: Turn) -> list[dict[str, Any]]:
        manifest, log = read_manifest(folder), self.folders.log(ckpt)
        steps = step_count(self.chunks, turn.chunk, self.params)
        unused = self.chunks.rows(turn.chunk) - steps * self.params.batch_size
        after = {"chunk": turn.chunk, "ckpt": ckpt, "step": manifest["step"], "tokens_seen": manifest["tokens_seen"]}
        counts = {"steps": steps, "rows_unused": unused, "metrics_sha256": sha256_file(log)}
        saved = {"ckpt": ckpt, "step": manifest["step"], "manifest_sha256": manifest_sha256(folder)}
        return [
            *({"event": "step_skipped", "chunk": turn.chunk, "step": step} for step in manifest["skipped_steps"]),
            {"event": "chunk_finished", **after, **counts},
            {"event": "checkpoint_saved", **saved},
        ]

    def _world_changed(self, ckpt: int, folder: Path, parent: Path) -> list[dict[str, Any]]:
        now, before = read_manifest(folder)["world"], read_manifest(parent).get("world")
        return [{"event": "world_changed", "ckpt": ckpt, **now}] if before not in (None, now) else []


def of_phase(state: TrainState, folder: Path, params: PhaseParams) -> TrainState:
    """Return a checkpoint's state as the phase sees it: one that begins counts its own steps and failures."""
    manifest = read_manifest(folder)
    if (manifest["suite"], manifest["phase"]) == (params.suite, params.phase):
        return state
    return dataclasses.replace(state, phase_step=0, deferred=(), skipped=())


def _failed(turn: Turn, failure: Failure) -> dict[str, Any]:
    kind = "chunk_deferred" if turn.kind == "first" else "chunk_skipped"
    return {"event": kind, "chunk": failure.chunk, "step": failure.step}


def write_jsonl(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, by rename."""
    write_bytes(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())
