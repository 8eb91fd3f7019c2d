"""A suite's index: one row per checkpoint, made from the manifests and refused when they do not fit together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from llm360.checkpoint import OPTIMIZER
from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import PARTIAL, manifest_sha256, read_manifest, write_json
from registry.ids import ArtifactId, Kind
from registry.workspace import INDEX_FORMAT, Workspace

COPIED = ("ckpt", "phase", "step", "phase_step", "tokens_seen", "chunks_seen", "dtype", "optimizer", "parent", "files")
NAME = re.compile(r"ckpt_([0-9]{3,})")


def build_index(workspace: Workspace, suite: str) -> list[dict[str, Any]]:
    """Return a row per checkpoint of a suite, in order.

    Raises StoreUnavailable when there is none; IntegrityError for a folder without manifest, a gap in the numbers,
    two checkpoints with the same weights, or a checkpoint whose parent is not the one before it.
    """
    folder = workspace.artifacts / "checkpoints" / suite
    found = sorted(p for p in folder.rglob("ckpt_*") if p.is_dir() and PARTIAL not in p.as_posix())
    if not found:
        raise StoreUnavailable(f"{folder}: no checkpoint; `make repro` builds them, `dvc pull {folder}` brings them")
    rows = sorted((_row(workspace, suite, path) for path in found), key=lambda row: int(row["ckpt"]))
    _require_unbroken(folder, rows)
    _require_distinct(rows)
    _require_lineage(rows)
    return rows


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
    return {key: manifest[key] for key in COPIED} | own


def _base(manifest: Mapping[str, Any]) -> str | None:
    base = manifest.get("base")  # only a fine-tuned suite's checkpoints name one
    return None if base is None else str(ArtifactId(suite=base["suite"], kind=Kind.CKPT, index=base["ckpt"]))


def _require_unbroken(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    for expected, row in enumerate(rows):
        if row["ckpt"] != expected:
            raise IntegrityError(
                f"{folder}: no ckpt_{expected:03d} before {row['path']}; rebuild or pull what is missing"
            )


def _require_distinct(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two checkpoints with the same weights: the fault of several published suites."""
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        weights = tuple(f["sha256"] for f in row["files"] if _is_weights(f["path"]))
        if not weights:
            raise IntegrityError(f"{row['path']}: its manifest names no model.safetensors; rebuild it")
        if weights in seen:
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
    """Return the whole index: format, suite, base, phases and one entry per checkpoint."""
    phases = []
    for name, group in groupby(rows, key=lambda row: str(row["phase"])):
        numbers = [int(row["ckpt"]) for row in group]
        phases.append({"name": name, "first": numbers[0], "last": numbers[-1]})
    checkpoints = [{k: v for k, v in row.items() if k != "base"} for row in rows]
    return {
        "format": INDEX_FORMAT,
        "suite": suite,
        "base": rows[0]["base"],
        "phases": phases,
        "checkpoints": checkpoints,
    }


def write_index(workspace: Workspace, suite: str) -> Path:
    """Build a suite's index and write it to ``artifacts/index/<suite>.json``."""
    path = workspace.artifacts / "index" / f"{suite}.json"
    write_json(path, index_document(suite, build_index(workspace, suite)))
    return path
