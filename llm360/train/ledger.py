"""The ledger: an append-only file of what happened to a run's state, one event a line.

An event enters when it is final, after the bytes that it names are on disk, so a killed run and one that was
never killed have the same ledger. What a clock or a process id says goes to the sessions file instead.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
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
        return read_events(self.path)

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


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return a ledger's events in order, the file untouched: a run may be appending to it, so half a line is no event.

    Raises IntegrityError for a line that is not JSON.
    """
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise IntegrityError(f"{path}: a line is not JSON ({error}); restore the file: dvc checkout") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """One time that training read a chunk. Steps are optimizer steps of the whole suite, counted from 1.

    ckpt is the checkpoint saved after it. number counts the passes over this chunk in its phase, from 1; turn says
    whether it was read for the first time, once more after it failed, or again to complete the schedule. seed, phase
    and chunk give the order of its rows, which every pass over it reads alike: step first_step + s trains on positions
    [s * batch_size, (s + 1) * batch_size) of it, and the last rows_unused positions fill no step. skipped_steps were
    not finite and left the weights as they were. tokens_seen is the suite's total after the pass; sha256 is that of
    the chunk's shard file.
    """

    phase: str
    seed: int
    chunk: int
    ckpt: int
    number: int
    turn: str
    first_step: int
    steps: int
    batch_size: int
    rows_unused: int
    skipped_steps: tuple[int, ...]
    tokens_seen: int
    sha256: str

    @property
    def last_step(self) -> int:
        """The last step that read it."""
        return self.first_step + self.steps - 1

    @property
    def rows(self) -> int:
        """Rows that steps were taken on."""
        return self.steps * self.batch_size

    def positions(self, step: int) -> range:
        """Return the positions in the chunk's order that a step of this pass trained on."""
        start = (step - self.first_step) * self.batch_size
        return range(start, start + self.batch_size)

    def step_at(self, position: int) -> int | None:
        """Return the step that trained on a position of the chunk's order; None for one that filled no step."""
        return self.first_step + position // self.batch_size if position < self.rows else None


def passes(events: Sequence[Mapping[str, Any]]) -> list[Pass]:
    """Return the passes over chunks that a phase's events tell of, in the order of training.

    A chunk that failed and was deferred, or skipped for good, gives none for that turn; one that was repeated gives
    several. Raises IntegrityError when a field is missing or the steps leave a gap.
    """
    found: list[Pass] = []
    phase: Mapping[str, Any] = {}
    started: Mapping[str, Any] = {}
    skipped: list[int] = []
    for event in events:
        if event["event"] == "phase_started":
            phase = event
        elif event["event"] == "chunk_started":
            started, skipped = event, []
        elif event["event"] == "step_skipped":
            skipped.append(event["step"])
        elif event["event"] == "chunk_finished":
            number = 1 + sum(p.chunk == event["chunk"] for p in found)
            found.append(_pass(phase, started, event, number, tuple(skipped)))
    require_unbroken(found)
    return found


def _pass(
    phase: Mapping[str, Any],
    started: Mapping[str, Any],
    finished: Mapping[str, Any],
    number: int,
    skipped: tuple[int, ...],
) -> Pass:
    try:
        return Pass(
            phase=phase["phase"],
            seed=phase["seed"],
            chunk=finished["chunk"],
            ckpt=finished["ckpt"],
            number=number,
            turn=started["turn"],
            first_step=finished["step"] - finished["steps"] + 1,
            steps=finished["steps"],
            batch_size=started["batch_size"],
            rows_unused=finished["rows_unused"],
            skipped_steps=skipped,
            tokens_seen=finished["tokens_seen"],
            sha256=started["sha256"],
        )
    except KeyError as error:
        raise IntegrityError(
            f"the ledger has no {error.args[0]} for chunk {finished.get('chunk')}; expected phase_started, "
            f"chunk_started and chunk_finished as docs/formats.md says: it is cut or of an older version, "
            f"pull it or train again"
        ) from error


def phase_started(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the event that a phase began with: its phase and the seed of its order; raises IntegrityError."""
    begun = [e for e in events if e["event"] == "phase_started"]
    if not begun or not {"phase", "seed"} <= begun[-1].keys():
        raise IntegrityError(
            "the ledger has no phase_started with the seed of the order; it is of an older version or cut: "
            "train or pull it again"
        )
    return begun[-1]


def require_unbroken(passes: Sequence[Pass]) -> None:
    """Raise IntegrityError unless every pass begins at the step after the one before it."""
    for before, after in pairwise(passes):
        if after.first_step != before.last_step + 1:
            raise IntegrityError(
                f"the ledger goes from step {before.last_step} (chunk {before.chunk}) to step {after.first_step} "
                f"(chunk {after.chunk}), expected {before.last_step + 1}; pull the whole ledger again"
            )


def chunks_seen(events: list[dict[str, Any]], *, ckpt: int) -> list[int]:
    """Return the chunks that checkpoint ``ckpt`` had consumed, in order, from the ledger's events."""
    seen: list[int] = []
    for event in events:
        if event["event"] == "chunk_finished":
            seen.append(event["chunk"])
        if event["event"] == "checkpoint_saved" and event["ckpt"] == ckpt:
            return seen
    raise IntegrityError(f"the ledger has no checkpoint {ckpt}; it ends at event {len(events)}: pull the whole ledger")
