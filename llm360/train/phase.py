"""One pretraining phase: from a checkpoint over the chunks to a checkpoint after each, exact under any kill."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.checkpoint import TrainState, carried_files
from llm360.config import fingerprint
from llm360.data.chunks import ChunkReader
from llm360.files import is_whole, manifest_sha256, read_manifest, remove_partial
from llm360.flops import Meter, meter
from llm360.progress import say
from llm360.trackers import Tracker
from llm360.train.checks import check_inputs
from llm360.train.ledger import Ledger
from llm360.train.live import live
from llm360.train.loop import StepMetrics
from llm360.train.params import PhaseParams
from llm360.train.passes import train_pass
from llm360.train.pause import MEASURED, Paused, measured_lines, pausable, read_measured
from llm360.train.record import Passed, Recorder, RunFolders, of_phase
from llm360.train.trainer import Trainer
from llm360.train.writer import Writer

if TYPE_CHECKING:
    from llm360.train.distributed import World

PAUSED = "paused"  # the checkpoint in mid-chunk, in the work folder


def run_phase(
    params: PhaseParams,
    *,
    start: Path,
    chunks: ChunkReader,
    folders: RunFolders,
    recipe: Mapping[str, Any],
    world: World,
    trackers: Sequence[Tracker] = (),
) -> None:
    """Train over all chunks of the phase; goes on after the last whole checkpoint when there is one.

    Every rank calls it; the first one writes. ``recipe`` is all that the bytes depend on; its fingerprint goes into
    every checkpoint's manifest, itself into the ledger. Raises Paused after a polite signal.
    """
    check_inputs(params, start=start, chunks=chunks, world=world)
    recorder = Recorder(
        params=params,
        chunks=chunks,
        folders=folders,
        start=start,
        fields=manifest_fields(recipe, world),
        static=carried_files(start),
    )
    ledger = Ledger(folders.ledger / "ledger.jsonl") if world.leads else None
    done = world.share(_complete(recorder, ledger, recipe) if ledger else 0)
    if done < chunks.manifest["chunks"]:
        _train(recorder, ledger, world, done, trackers)
    if world.leads:
        shutil.rmtree(folders.work / PAUSED, ignore_errors=True)


def manifest_fields(recipe: Mapping[str, Any], world: World) -> dict[str, Any]:
    """Return what a recipe and the ranks add to a checkpoint's manifest."""
    ranks = {"ranks": world.size, "replicas": world.replicas}
    return {"fingerprint": fingerprint(recipe), "environment": recipe["environment"], "world": ranks}


def _complete(recorder: Recorder, ledger: Ledger, recipe: Mapping[str, Any]) -> int:
    """Clear what a kill left, complete the ledger from what is on disk, and return the number of whole checkpoints."""
    params, first = recorder.params, recorder.chunks.manifest["first_chunk"]
    remove_partial(recorder.folders.checkpoints)
    done = recorder.finished()
    begun = {"suite": params.suite, "phase": params.phase, "seed": params.seed}
    begun |= {"start": manifest_sha256(recorder.start), "fingerprint": fingerprint(recipe), "recipe": recipe}
    ledger.record({"event": "phase_started", **begun})
    ledger.record(*[e for ckpt in range(first, first + done) for e in recorder.events(ckpt)])
    return done


def _train(recorder: Recorder, ledger: Ledger | None, world: World, done: int, trackers: Sequence[Tracker]) -> None:
    params, chunks = recorder.params, recorder.chunks
    first, count = chunks.manifest["first_chunk"], chunks.manifest["chunks"]
    with pausable() as pause, Writer() as writer:
        trainer, state, earlier = _resume(recorder, world, first + done)
        recorder = dataclasses.replace(recorder, meter=_meter(recorder, trainer))
        with live(recorder, state, earlier, trackers if world.leads else None) as show:

            def settle() -> None:
                writer.wait()
                world.barrier()

            def asked(measured: Sequence[StepMetrics]) -> bool:
                show(state, measured)
                return world.sum(float(pause.asked))[0] > 0

            for ckpt in range(first + done, first + count):
                home = recorder.parent(ckpt)
                passed = train_pass(
                    trainer, params, chunks, state=state, home=home, earlier=earlier, stop=asked, settle=settle
                )
                tensors = trainer.snapshot()
                if ledger is not None and passed.whole:
                    writer.submit(functools.partial(recorder.write, ledger, passed, tensors))
                if not passed.whole or world.sum(float(pause.asked))[0] > 0:
                    settle()
                    _pause(recorder, world, passed, tensors)
                state, earlier = passed.state, ()


def _meter(recorder: Recorder, trainer: Trainer) -> Meter:
    length, precision = recorder.chunks.manifest["sequence_length"], trainer.precision
    return meter(trainer.model, sequence_length=length, precision=precision, world=trainer.world)


def _resume(recorder: Recorder, world: World, ckpt: int) -> tuple[Trainer, TrainState, Sequence[StepMetrics]]:
    """Return the trainer, the state at the start of the chunk that comes, and the steps that were taken in it."""
    params, home, paused = recorder.params, recorder.parent(ckpt), recorder.folders.work / PAUSED
    if not _fits(paused, home, recorder.fields):
        if ckpt > recorder.chunks.manifest["first_chunk"] and world.leads:
            say(f"{params.folder}: going on after {home.name}")
        trainer, state = Trainer.restore(home, params, world)
        return trainer, of_phase(state, home, params), ()
    trainer, state = Trainer.restore(paused, params, world)
    if world.leads:
        say(f"{params.folder}: going on {state.position} steps after {home.name}, where it was paused")
    begun = of_phase(TrainState.read(home), home, params)
    begun = dataclasses.replace(begun, deferred=state.deferred, skipped=state.skipped)
    return trainer, begun, read_measured(paused)


def _fits(paused: Path, home: Path, fields: Mapping[str, Any]) -> bool:
    """Whether a paused state goes on from ``home`` under the same recipe and with the same ranks."""
    if not is_whole(paused):
        return False
    manifest = read_manifest(paused)
    wanted = {"parent": manifest_sha256(home), **fields}
    return {key: manifest.get(key) for key in wanted} == wanted


def _pause(recorder: Recorder, world: World, passed: Passed, tensors: Any) -> None:
    where = f"step {passed.state.step}"
    if world.leads and not passed.whole:
        measured = {MEASURED: measured_lines(passed.measured)}
        home = recorder.parent(passed.before.chunks_seen)
        recorder.checkpoint(recorder.folders.work / PAUSED, home, passed, tensors, **measured)
    world.barrier()
    raise Paused(f"{recorder.params.folder}: saved at {where} and ended, as asked; the same command goes on from there")


def next_checkpoint(
    params: PhaseParams,
    *,
    parent: Path,
    chunks: ChunkReader,
    out: Path,
    fields: Mapping[str, Any],
    world: World,
    towards: TrainState | None = None,
    steps: int | None = None,
) -> Sequence[StepMetrics]:
    """Make the checkpoint that follows ``parent`` into ``out``, byte for byte as ``run_phase`` does; return its steps.

    With ``steps`` it stops after so many of them, and ``out`` is the state there; ``towards`` is then the state of the
    recorded checkpoint, which tells of chunks that failed on the way, so that they are not read again.
    """
    trainer, state = Trainer.restore(parent, params, world)
    begun = of_phase(state, parent, params)
    if towards is not None:
        begun = dataclasses.replace(begun, deferred=towards.deferred, skipped=towards.skipped)
    passed = train_pass(trainer, params, chunks, state=begun, home=parent, stop=lambda measured: len(measured) == steps)
    tensors = trainer.snapshot()
    if world.leads:
        static, nowhere = carried_files(parent), RunFolders(out, out, out, out, out)
        recorder = Recorder(params=params, chunks=chunks, folders=nowhere, start=parent, fields=fields, static=static)
        recorder.checkpoint(out, parent, passed, tensors)
    world.barrier()
    return passed.measured
