"""The ledger: an append-only file of what happened to a run's state, one event a line.

An event enters when it is final, after the bytes that it names are on disk, so a killed run and one that was
never killed have the same ledger. What a clock or a process id says goes to the sessions file instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm360.errors import IntegrityError
from llm360.files import named_when_full, write_bytes

FILE = "ledger.jsonl"


class Ledger:
    """Reads and appends events; a line that a kill cut short is dropped when the file is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            self._own_the_bytes()
            self._drop_torn_line()
        else:
            write_bytes(path, b"")
        self._known = set(self.path.read_text(encoding="utf-8").splitlines())

    def _own_the_bytes(self) -> None:
        """Copy a file that a cache links to before it is appended to, or the cache would change with it."""
        if self.path.stat().st_nlink > 1 or self.path.is_symlink():
            write_bytes(self.path, self.path.read_bytes())

    def _drop_torn_line(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(self.path, whole)

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order; raises IntegrityError for a line that is not JSON."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise IntegrityError(
                f"{self.path}: a line is not JSON ({error}); restore the file: dvc checkout"
            ) from error

    def record(self, *events: Mapping[str, Any]) -> None:
        """Append the events that are not there yet in one write and wait until they are on disk.

        Work that is done again after a kill has the same events, and happened once as far as the state goes.
        """
        lines = [json.dumps(e, sort_keys=True, allow_nan=False) for e in events]
        new = [line for line in lines if line not in self._known]
        if new:
            with named_when_full(self.path), open(self.path, "ab") as handle:
                handle.write("".join(f"{line}\n" for line in new).encode())
                handle.flush()
                os.fsync(handle.fileno())
            self._known.update(new)


def chunks_seen(events: list[dict[str, Any]], *, ckpt: int) -> list[int]:
    """Return the chunks that checkpoint ``ckpt`` had consumed, in order, from the ledger's events."""
    seen: list[int] = []
    for event in events:
        if event["event"] == "chunk_finished":
            seen.append(event["chunk"])
        if event["event"] == "checkpoint_saved" and event["ckpt"] == ckpt:
            return seen
    raise IntegrityError(f"the ledger has no checkpoint {ckpt}; it ends at event {len(events)}: pull the whole ledger")
