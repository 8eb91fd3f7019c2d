"""A suite's index: one row per checkpoint, made from the manifests and refused when they do not fit together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from llm360.checkpoint import OPTIMIZER, STATE, TrainState
from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import PARTIAL, FileEntry, manifest_sha256, read_manifest, verify_file, write_json
from registry.ids import ArtifactId, Kind
from registry.irregular import from_states
from registry.workspace import INDEX_FORMAT, Workspace

COPIED = ("ckpt", "phase", "step", "phase_step", "tokens_seen", "chunks_seen", "dtype", "optimizer", "parent", "files")
NAME = re.compile(r"ckpt_([0-9]{3,})")


def build_index(workspace: Workspace, suite: str) -> list[dict[str, Any]]:
    """Return a row per checkpoint of a suite, in order.

    Numbers begin at 0, those of a branch after the checkpoint that it comes from. Raises StoreUnavailable when there is
    none; IntegrityError for a folder without manifest, a gap in the numbers, two checkpoints with the same weights, or
    a checkpoint whose parent is not the one before it.
    """
    folder = workspace.artifacts / "checkpoints" / suite
    found = sorted(p for p in folder.rglob("ckpt_*") if p.is_dir() and PARTIAL not in p.as_posix())
    if not found:
        raise StoreUnavailable(f"{folder}: no checkpoint; `make repro` builds them, `dvc pull {folder}` brings them")
    rows = sorted((_row(workspace, suite, path) for path in found), key=lambda row: int(row["ckpt"]))
    _require_unbroken(folder, rows)
    _require_distinct(rows)
    _require_lineage(rows)
    _require_branched(workspace, rows[0])
    return _told(workspace, rows)


def _row(workspace: Workspace, suite: str, path: Path) -> dict[str, Any]:
    manifest = read_manifest(path)
    match = NAME.fullmatch(path.name)
    if match is None or (manifest.get("suite"), manifest.get("ckpt")) != (suite, int(match[1])):
        named = f"{manifest.get('suite')}/ckpt-{manifest.get('ckpt')}"
        raise IntegrityError(f"{path}: its manifest names {named}, not {suite} and its folder's number; rebuild it")
    if missing := [key for key in COPIED if key not in manifest]:
        raise IntegrityError(f"{path}: its manifest has no {', '.join(missing)}; rebuild it")
    place = path.relative_to(workspace.artifacts).as_posix()
    own = {"path": place, "manifest_sha256": manifest_sha256(path), "base": _base(manifest)}
    told = {key: manifest.get(key) for key in ("branch", "world", "skipped_steps")}
    return {key: manifest[key] for key in COPIED} | own | told


def _base(manifest: Mapping[str, Any]) -> str | None:
    base = manifest.get("base")  # only a fine-tuned suite's checkpoints name one
    return None if base is None else str(ArtifactId(suite=base["suite"], kind=Kind.CKPT, index=base["ckpt"]))


def _require_unbroken(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    branch = rows[0]["branch"]
    first = 0 if branch is None else (ArtifactId.parse(branch).index or 0) + 1
    for expected, row in enumerate(rows, start=first):
        if row["ckpt"] != expected:
            raise IntegrityError(
                f"{folder}: no ckpt_{expected:03d} before {row['path']}; rebuild or pull what is missing"
            )


def _require_branched(workspace: Workspace, row: Mapping[str, Any]) -> None:
    """Refuse a branch whose first checkpoint does not follow from the one it names, when that one is here."""
    if row["branch"] is None:
        return
    branch = ArtifactId.parse(row["branch"])
    folder = workspace.artifacts / "checkpoints" / branch.suite
    for path in (p for p in folder.rglob(f"ckpt_{branch.index:03d}") if PARTIAL not in p.as_posix()):
        if manifest_sha256(path) != row["parent"]:
            raise IntegrityError(
                f"{row['path']}: its parent is {row['parent']}, but {branch}, which it branched off, is "
                f"{manifest_sha256(path)} here: that suite was trained anew; train the branch again (dvc repro)"
            )


def _told(workspace: Workspace, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the chunk that each checkpoint really read, and what was irregular since its parent."""
    found: list[dict[str, Any]] = []
    world: Mapping[str, Any] | None = None
    for _, group in groupby(rows, key=lambda row: str(row["phase"])):
        states: list[TrainState] = []  # of this phase so far
        for row in group:
            told = ["world_changed"] if world not in (None, row["world"]) else []
            told += ["step_skipped"] if row["skipped_steps"] else []
            if (state := _state(workspace, row)) is not None:
                told += from_states(states, state)
                states.append(state)
            chunk = None if state is None else state.chunk
            kept = {key: value for key, value in row.items() if key not in ("world", "skipped_steps")}
            found.append(kept | {"chunk": chunk, "irregular": sorted(told)})
            world = row["world"]
    return found


def _state(workspace: Workspace, row: Mapping[str, Any]) -> TrainState | None:
    """Return the state that was saved with a checkpoint; None for a fine-tuned suite's, which read no chunk."""
    entries = {e["path"]: FileEntry(**e) for e in row["files"]}
    if row["base"] is not None or STATE not in entries:
        return None
    folder = workspace.artifacts / row["path"]
    verify_file(folder / STATE, entries[STATE])
    return TrainState.read(folder)


def _require_distinct(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two checkpoints with the same weights: the fault of several published suites.

    Where steps were skipped, weights may rightly be those of the checkpoint before.
    """
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        weights = tuple(f["sha256"] for f in row["files"] if _is_weights(f["path"]))
        if not weights:
            raise IntegrityError(f"{row['path']}: its manifest names no model.safetensors; rebuild it")
        if weights in seen and not row["skipped_steps"]:
            raise IntegrityError(
                f"{row['path']} and {seen[weights]} hold the same weights, byte for byte; rebuild both"
            )
        seen[weights] = row["path"]


def _is_weights(path: str) -> bool:
    return path.endswith(".safetensors") and path != OPTIMIZER


def _require_lineage(rows: Sequence[Mapping[str, Any]]) -> None:
    for before, row in pairwise(rows):
        if row["parent"] != before["manifest_sha256"]:
            raise IntegrityError(
                f"{row['path']}: its parent is {row['parent']}, but {before['path']} is {before['manifest_sha256']}; "
                f"they are not of one run: rebuild the later ones"
            )


def index_document(suite: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the whole index: format, suite, base, branch, phases and one entry per checkpoint."""
    phases = []
    for name, group in groupby(rows, key=lambda row: str(row["phase"])):
        numbers = [int(row["ckpt"]) for row in group]
        phases.append({"name": name, "first": numbers[0], "last": numbers[-1]})
    checkpoints = [{k: v for k, v in row.items() if k not in ("base", "branch")} for row in rows]
    return {
        "format": INDEX_FORMAT,
        "suite": suite,
        "base": rows[0]["base"],
        "branch": rows[0]["branch"],
        "phases": phases,
        "checkpoints": checkpoints,
    }


def write_index(workspace: Workspace, suite: str) -> Path:
    """Build a suite's index and write it to ``artifacts/index/<suite>.json``."""
    path = workspace.artifacts / "index" / f"{suite}.json"
    write_json(path, index_document(suite, build_index(workspace, suite)))
    return path
