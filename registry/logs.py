"""What records the sha256 of a training log: a pretrained suite's ledger, a fine-tuned suite's manifest."""

from __future__ import annotations

import json
from pathlib import Path

from llm360.errors import IntegrityError
from llm360.files import MANIFEST, FileEntry, read_manifest
from registry.suite import Suite

LEDGER = "ledger.jsonl"


def log_name(index: int) -> str:
    """Return the file name of the log that ends at a checkpoint: of the pass over a chunk before it."""
    return f"chunk_{index:03d}.jsonl"


def record(artifacts: Path, suite: Suite, index: int) -> Path:
    """Return the file that records the hash of an index's log; it may not be here."""
    below = suite.folder(index)
    return artifacts / "ledgers" / below / LEDGER if suite.base is None else artifacts / "metrics" / below / MANIFEST


def hashes(path: Path) -> dict[str, str]:
    """Return the sha256 of each log by its file name, from a ledger or a manifest; nothing when it is not here."""
    if not path.is_file():
        return {}
    if path.name == MANIFEST:
        return {e["path"]: e["sha256"] for e in read_manifest(path.parent)["files"]}
    try:  # the last line may be half written: a run is appending to it
        events = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        return {log_name(e["ckpt"]): e["metrics_sha256"] for e in events if e["event"] == "chunk_finished"}
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: a line is no event of a ledger ({error!r}); remove it and pull it") from error


def log_entries(path: Path, known: dict[str, str]) -> tuple[FileEntry, ...]:
    """Return the entry of a log that is here; nothing when no hash of it is known."""
    if path.name not in known:
        return ()
    return (FileEntry(path=path.name, bytes=path.stat().st_size, sha256=known[path.name]),)
