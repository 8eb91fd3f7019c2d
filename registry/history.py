"""What a suite's own training read and when, from its ledgers and the manifests of its chunks; no token is read for it.

What came before a branch is another suite's history: registry/lineage.py follows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.checkpoint import STATE, TrainState
from llm360.errors import IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import MANIFEST, FileEntry, read_manifest, verify_file
from llm360.train.ledger import Pass, passes, phase_started, read_events, require_unbroken
from registry import catalog
from registry.ids import ArtifactId, Kind, whole_number
from registry.logs import LEDGER
from registry.store import store_for
from registry.suite import Phase, Suite
from registry.workspace import Workspace, chunk_files

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from llm360.data.chunks import ChunkReader


@dataclasses.dataclass(frozen=True)
class History:
    """The run of a suite that was trained on chunks, in a workspace."""

    suite: Suite
    workspace: Workspace
    readers: dict[str, ChunkReader] = dataclasses.field(default_factory=dict, repr=False, compare=False)  # by phase

    @classmethod
    def of(cls, name: str) -> History:
        """Return a suite's history; raises NotReleased where the order was not published or there are no chunks."""
        suite = catalog.find(name)
        if suite.no_order is not None:
            raise NotReleased(f"{name}: {suite.no_order.reason} (source: {suite.no_order.source})")
        suite.require(ArtifactId(suite=name, kind=Kind.CHUNK, index=suite.phases[0].first))
        store = store_for(suite)
        if not isinstance(store, Workspace):
            raise StoreUnavailable(f"{name}: only a workspace has its ledgers; `make repro` builds them in a clone")
        return cls(suite, store)

    def chunk_phase(self, chunk: int) -> tuple[int, Phase]:
        """Return a chunk's index as an int, and its phase; raises NotFound with the nearest chunks."""
        wanted = ArtifactId(suite=self.suite.name, kind=Kind.CHUNK, index=chunk)
        self.suite.require(wanted)
        index = wanted.index or 0
        return index, self.suite.phase_of(index)

    def ledger(self, phase: Phase) -> Path:
        """Return the file of a phase's ledger; it may not be here."""
        return self.workspace.artifacts / "ledgers" / self.suite.folder(phase.first) / LEDGER

    def events(self, phase: Phase) -> list[dict[str, Any]]:
        """Return the events of a phase's ledger; raises StoreUnavailable when the phase was not trained here."""
        if not self.ledger(phase).is_file():
            raise self._untrained(phase)
        return read_events(self.ledger(phase))

    def _untrained(self, phase: Phase, *, known: str = "") -> StoreUnavailable:
        place = self.ledger(phase).parent.relative_to(self.workspace.root).as_posix()
        return StoreUnavailable(
            f"{self.suite.name}, {phase.name}: not trained in this workspace, for there is no {place}/{LEDGER}; "
            f"`registry pull {self.suite.name}/log-{phase.first}` brings it, `make repro` builds it{known}"
        )

    def seed(self, phase: Phase) -> tuple[str, int]:
        """Return the words that the order of a phase's chunks depends on: the phase's name and the seed."""
        begun = phase_started(self.events(phase))
        return begun["phase"], begun["seed"]

    def over(self, chunk: int) -> list[Pass]:
        """Return the passes over one chunk: none when it was skipped or its turn has not come."""
        index, phase = self.chunk_phase(chunk)
        return [p for p in passes(self.events(phase)) if p.chunk == index]

    def phases_until(self, ckpt: int) -> list[tuple[Phase, int]]:
        """Return the phases up to a checkpoint, each with its last checkpoint or the one that was asked for."""
        return [(phase, min(ckpt, phase.last)) for phase in self.suite.phases if phase.first <= ckpt]

    def until(self, ckpt: int) -> list[Pass]:
        """Return the suite's own passes up to a checkpoint, over all its phases, in the order of training."""
        parts = self.phases_until(ckpt)
        found = [p for phase, last in parts for p in passes(_until(self.events(phase), last, self.ledger(phase)))]
        require_unbroken(found)
        return found

    def chunks_read(self, ckpt: int) -> list[int]:
        """Return the chunk of each pass up to a checkpoint; where a ledger is not here, as the states prove it."""
        return [chunk for phase, last in self.phases_until(ckpt) for chunk in self._chunks_read(phase, last)]

    def _chunks_read(self, phase: Phase, ckpt: int) -> list[int]:
        if self.ledger(phase).is_file():
            return [p.chunk for p in passes(_until(self.events(phase), ckpt, self.ledger(phase)))]
        if self._nothing_irregular(ckpt):
            return list(range(phase.first, ckpt + 1))
        what = (
            f"what {self.suite.name}/ckpt-{ckpt} saw is in that ledger alone, unless its {STATE} is here and shows that"
        )
        raise self._untrained(phase, known=f"; {what} no chunk of the phase was put off")

    def _nothing_irregular(self, ckpt: int) -> bool:
        """Return whether a checkpoint's state is here and proves that its phase read one chunk after the other."""
        folder, _ = self.workspace.place(self.suite, ArtifactId(suite=self.suite.name, kind=Kind.CKPT, index=ckpt))
        if not (folder / MANIFEST).is_file() or not (folder / STATE).is_file():
            return False
        entries = {e["path"]: FileEntry(**e) for e in read_manifest(folder)["files"]}
        verify_file(folder / STATE, entries[STATE])
        state = TrainState.read(folder)
        return state.chunk == ckpt and not state.deferred and not state.skipped

    def begins(self) -> int | None:
        """Return the steps that were taken before the suite's first chunk; None where its first ledger tells none."""
        started = [e for e in self._first_events() if e["event"] == "chunk_started"]
        return int(started[0]["step"]) if started else None

    def start(self) -> str | None:
        """Return the sha256 of the manifest of the checkpoint that the suite started from, where it is recorded."""
        events = self._first_events()
        return phase_started(events).get("start") if events else None

    def _first_events(self) -> list[dict[str, Any]]:
        first = self.suite.phases[0]
        return self.events(first) if self.ledger(first).is_file() else []

    def saved(self, ckpt: int) -> str | None:
        """Return the sha256 of a checkpoint's manifest, where the ledger is here and names it."""
        phase = self.suite.phase_of(ckpt)
        events = self.events(phase) if self.ledger(phase).is_file() else []
        return next((e.get("manifest_sha256") for e in events if _saves(e, ckpt)), None)

    def at(self, step: int) -> Pass:
        """Return the pass that took an optimizer step, counted over the suite from 1."""
        number = whole_number(step)
        if number is None or number < 1:
            raise InvalidId(f"read step {step!r}, expected a whole number: {self.suite.name}'s steps count from 1")
        goes, absent = "has taken no step yet", None
        for phase in self.suite.phases:
            if not self.ledger(phase).is_file():
                absent = absent or phase
                continue
            for found in passes(self.events(phase)):
                if found.first_step <= number <= found.last_step:
                    return found
                goes = f"goes to step {found.last_step}, in chunk {found.chunk}"
        if absent is not None:
            raise self._untrained(absent, known=f"; what is here {goes}")
        raise NotFound(f"{self.suite.name} has no step {number}: its run {goes}")

    def chunks(self, chunk: int) -> ChunkReader:
        """Return the reader of the chunks that a chunk is among; it has read their manifest and nothing else."""
        index, phase = self.chunk_phase(chunk)
        folder, _ = self.workspace.place(self.suite, self._id(index))
        if not (folder / MANIFEST).is_file():
            raise self.workspace.absent(self._id(index), folder / MANIFEST)
        if phase.name not in self.readers:
            self.readers[phase.name] = read_chunks(folder, self.suite.name, phase)
        return self.readers[phase.name]

    def trained(self, reading: Pass) -> ChunkReader:
        """Return the reader of the chunk that a pass read; raises IntegrityError when it was made anew since."""
        reader = self.chunks(reading.chunk)
        here = (reader.rows(reading.chunk), reader.entry(reading.chunk).sha256)
        read = (reading.rows + reading.rows_unused, reading.sha256)
        if here != read:
            raise IntegrityError(
                f"{self._id(reading.chunk)}: the ledger trained on {read[0]} rows with sha256 {read[1]}, but the "
                f"manifest here names {here[0]} rows with {here[1]}: the chunks were made anew; pull those of this run "
                f"(registry pull {self._id(reading.chunk)}), or train again (make repro)"
            )
        return reader

    def provenance(self, reading: Pass, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the provenance of the chunk that a pass read, a row for each row in stored order."""
        self._require(reading.chunk, -1)
        return self.trained(reading).provenance(reading.chunk, columns=columns)

    def tokens(self, reading: Pass, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return rows of the chunk that a pass read, [rows, sequence_length + 1]."""
        self._require(reading.chunk, 0)
        return self.trained(reading).some(reading.chunk, rows)

    def _require(self, chunk: int, file: int) -> None:
        folder, _ = self.workspace.place(self.suite, self._id(chunk))
        name = chunk_files(chunk, chunk - self.suite.phase_of(chunk).first)[file]
        if not (folder / name).is_file():
            raise self.workspace.absent(self._id(chunk), folder / name)

    def _id(self, chunk: int) -> ArtifactId:
        return ArtifactId(suite=self.suite.name, kind=Kind.CHUNK, index=chunk)


def read_chunks(folder: Path, suite: str, phase: Phase) -> ChunkReader:
    """Return the reader of a folder of chunks; raises IntegrityError unless they are those of the suite's phase."""
    from llm360.data.chunks import ChunkReader

    reader = ChunkReader(folder)
    if (reader.manifest["suite"], reader.manifest["first_chunk"]) != (suite, phase.first):
        raise IntegrityError(f"{folder}: not the chunks of {suite} from {phase.first} on; rebuild it: dvc repro")
    return reader


def _until(events: list[dict[str, Any]], ckpt: int, path: Path) -> list[Mapping[str, Any]]:
    found = next((i for i, event in enumerate(events) if _saves(event, ckpt)), None)
    if found is None:
        saved = [e["ckpt"] for e in events if e["event"] == "checkpoint_saved"]
        has = f"its last is {max(saved)}" if saved else "it has none"
        raise NotFound(f"{path}: no checkpoint {ckpt} was saved yet; {has}: train on (make repro) or pull the ledger")
    return list(events[: found + 1])


def _saves(event: Mapping[str, Any], ckpt: int) -> bool:
    return bool(event["event"] == "checkpoint_saved" and event["ckpt"] == ckpt)
