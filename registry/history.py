"""What a suite's training read and when, from its ledgers and the manifests of its chunks; no token is read for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import MANIFEST
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

    def until(self, ckpt: int) -> list[Pass]:
        """Return the passes up to a checkpoint, over all phases, in the order of training."""
        last = self.suite.phase_of(ckpt)
        found: list[Pass] = []
        for phase in self.suite.phases[: self.suite.phases.index(last) + 1]:
            events = self.events(phase)
            found += passes(_until(events, ckpt, self.ledger(phase)) if phase == last else events)
        require_unbroken(found)
        return found

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
    saved = {e["ckpt"]: i for i, e in enumerate(events) if e["event"] == "checkpoint_saved"}
    if ckpt not in saved:
        has = f"its last is {max(saved)}" if saved else "it has none"
        raise NotFound(f"{path}: no checkpoint {ckpt} was saved yet; {has}: train on (make repro) or pull the ledger")
    return list(events[: saved[ckpt] + 1])
