"""The state at any optimizer step: a saved checkpoint, or the one before it and the steps since, taken again.

A step's state lies in artifacts/steps/<suite>/step_<nnnnnn>/, a checkpoint folder like any other, made once.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import IntegrityError, InvalidId, StoreUnavailable
from llm360.files import MANIFEST, PARTIAL, FileEntry, manifest_sha256, read_manifest, verify
from registry import lineage
from registry.artifacts import Checkpoint
from registry.history import History
from registry.ids import ArtifactId, Kind, whole_number
from registry.replay import link as link_of
from registry.replay import start_of
from registry.store import Artifact
from registry.workspace import verify_files

if TYPE_CHECKING:
    import polars as pl

    from llm360.replay.evidence import Link
    from llm360.train.distributed import World
    from llm360.train.ledger import Pass
    from llm360.train.loop import StepMetrics

FOLDER = "steps"
INEXACT = "-inexact"  # of a folder whose steps measured otherwise than the recorded ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCheckpoint(Checkpoint):
    """The state after an optimizer step between two saved checkpoints; ``id`` is the one that it is on the way to."""

    def chunks_seen(self) -> list[int]:
        """Return the chunks whose tokens it was trained on, in order; of the last one perhaps a part."""
        if self.step == 0:
            return []
        return [reading.chunk for _, reading in lineage.until(self.suite, self.ckpt)]

    def metrics(self) -> pl.DataFrame:
        """Return the training log up to this step, one row per optimizer step."""
        frame = super().metrics()
        return frame.filter(frame["step"] <= self.step)


def at_step(suite: str, step: int, *, exact: bool) -> Checkpoint:
    """Return the state after optimizer step ``step``, counted over the suite from 1; 0 is before the first.

    A saved checkpoint is returned as it is. Else the steps since the one before it are taken again, in the recorded
    setting, and must measure the recorded losses and gradient norms to the last bit; the result is kept.
    Raises IntegrityError, naming what is different here, when they do not and ``exact`` is set; NotFound for a step
    that was not taken, and what ``replay`` raises.
    """
    number = whole_number(step)
    if number is None or number < 0:
        raise InvalidId(f"{suite}: read step {step!r}, expected a whole number from 0 (before the first step) on")
    if number == 0:
        return _initial(suite)
    history, reading = lineage.at(suite, number)
    if number == reading.last_step:
        return _saved(history, reading.ckpt)
    one = link_of(history, reading.ckpt)
    return _as_checkpoint(history, reading.ckpt, _made(history, one, reading, number, exact))


def _saved(history: History, ckpt: int) -> Checkpoint:
    wanted = ArtifactId(suite=history.suite.name, kind=Kind.CKPT, index=ckpt)
    artifact = history.workspace.resolve(history.suite, wanted)
    return Checkpoint(id=wanted, artifact=artifact, facts=history.suite, store=history.workspace)


def _initial(suite: str) -> Checkpoint:
    """Return the state before the first step of a suite, or of the one that it branched from."""
    history = History.of(suite)
    if history.suite.branch is not None:
        return _initial(history.suite.branch.suite)
    first = history.suite.phases[0].first
    folder = history.workspace.artifacts / start_of(history, first)
    if not (folder / MANIFEST).is_file():
        below = folder.relative_to(history.workspace.root).as_posix()
        raise StoreUnavailable(
            f"{suite} at step 0: no {below} here; `dvc pull {below}` brings it, `make repro` builds it"
        )
    return _as_checkpoint(history, first, folder)


def _as_checkpoint(history: History, ckpt: int, folder: Path) -> StepCheckpoint:
    manifest = read_manifest(folder)
    wanted = ArtifactId(suite=history.suite.name, kind=Kind.CKPT, index=ckpt)
    artifact = Artifact(
        id=wanted,
        location=folder.relative_to(history.workspace.root).as_posix(),
        commit=None,
        files=tuple(FileEntry(**e) for e in manifest["files"]),
        manifest={key: value for key, value in manifest.items() if key != "files"},
    )
    return StepCheckpoint(id=wanted, artifact=artifact, facts=history.suite, store=history.workspace)


def _made(history: History, link: Link, reading: Pass, step: int, exact: bool) -> Path:
    """Return the folder of a step's state, from before or made now."""
    from registry.ranks import with_recorded_ranks

    folder = history.workspace.artifacts / FOLDER / history.suite.name / f"step_{step:06d}"
    inexact = folder.with_name(folder.name + INEXACT)
    wanted = _names(link)
    for there in (folder, *([] if exact else [inexact])):
        if _usable(there, wanted):
            return there
    steps = step - reading.first_step + 1
    differs = with_recorded_ranks("steps", link, history.workspace, steps=steps, folder=str(folder.absolute()))
    if differs and exact:
        raise IntegrityError(
            f"{history.suite.name} at step {step}: {differs}; replayed from {link.parent.name} it is not what was "
            f"trained: see `registry replay {link.suite} --ckpt {link.ckpt}`, or take it as it is: exact=False"
        )
    return inexact if differs else folder


def _usable(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Return whether a folder holds what is wanted, every byte of it; what does not is made anew."""
    try:
        manifest = verify(folder)
    except IntegrityError:
        return False
    return {key: manifest.get(key) for key in wanted} == wanted


def _names(link: Link) -> dict[str, Any]:
    """Return what must be the same for a step's state to be used again."""
    from llm360.replay.evidence import setting
    from llm360.replay.replay import recorded_fields, recorded_setting

    with recorded_setting(link):
        here = setting()
    return {**recorded_fields(link), "parent": manifest_sha256(link.parent), "made_by": here}


def make_here(*, world: World, suite: str, ckpt: int, steps: int, folder: str) -> str:
    """Take the first steps to a checkpoint again, as one of the ranks of ``world``, and put the state into ``folder``.

    Returns how they measured otherwise than the recorded ones, and why that may be; then the folder's name ends in
    "-inexact". Empty when they are equal.
    """
    from llm360.checkpoint import TrainState
    from llm360.data.chunks import ChunkReader
    from llm360.replay.evidence import circumstances
    from llm360.replay.replay import asked, recorded_setting
    from llm360.train.phase import next_checkpoint

    history, out = History.of(suite), Path(folder)
    link = link_of(history, ckpt)
    _require_unaltered(link)
    recorded = _recorded(history, ckpt)[:steps]
    scratch = out.with_name(f"{PARTIAL}new-{out.name}")
    fields = _names(link)
    with recorded_setting(link):
        around = circumstances(link, ranks=world.size, changed={})
        measured = next_checkpoint(
            asked(link.recipe["params"], {}),
            parent=link.parent,
            chunks=ChunkReader(link.chunks),
            out=scratch,
            fields=fields,
            world=world,
            towards=TrainState.read(link.folder),
            steps=steps,
        )
    odd = _first_difference(recorded, measured)
    if world.leads:
        _put(scratch, out.with_name(out.name + INEXACT) if odd else out)
    why = "; ".join(map(str, around)) or "environment and code are the recorded ones"
    return f"{odd} ({why})" if odd else ""


def _require_unaltered(link: Link) -> None:
    from llm360.replay.evidence import altered
    from llm360.replay.replay import UNFIT

    wrong = [c for c in altered(link) if c.what in UNFIT]
    if wrong:
        raise IntegrityError(f"{link}: no step towards it can be taken again; {wrong[0]}")


def _put(scratch: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(scratch, folder)


def _recorded(history: History, ckpt: int) -> list[Mapping[str, Any]]:
    """Return the recorded steps that led to a checkpoint, their file checked against the ledger."""
    wanted = ArtifactId(suite=history.suite.name, kind=Kind.LOG, index=ckpt)
    artifact = history.workspace.resolve(history.suite, wanted)
    folder, (name,) = history.workspace.place(history.suite, wanted)
    verify_files(folder, artifact)
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def _first_difference(recorded: Sequence[Mapping[str, Any]], measured: Sequence[StepMetrics]) -> str:
    for row, step in zip(recorded, measured, strict=True):
        for name in ("loss", "grad_norm"):
            found = getattr(step, name)
            if row[name] != (found if math.isfinite(found) else None):
                return f"{name} of step {row['step']} was {row[name]!r} and is {found!r}"
    return ""
