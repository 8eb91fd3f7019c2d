"""The local store: the ``artifacts/`` folder of a clone, as the pipeline writes it and DVC pulls it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.checkpoint import OPTIMIZER
from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import MANIFEST, FileEntry, read_json, read_manifest, verify_file
from registry.ids import ArtifactId, Kind
from registry.logs import hashes, log_entries, log_name, record
from registry.store import Artifact, active
from registry.suite import Suite

if TYPE_CHECKING:
    from registry.chunks import Chunk

HOME, MARKER, ARTIFACTS = "LLM360_HOME", "dvc.yaml", "artifacts"
INDEX_FORMAT = "llm360-index/2"


@dataclasses.dataclass(frozen=True)
class Workspace:
    """A project folder with ``artifacts/`` inside. Implements Store."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))  # a str will do

    @classmethod
    def find(cls) -> Workspace:
        """Return the workspace: $LLM360_HOME, else the nearest parent of the working directory with a dvc.yaml."""
        if home := os.environ.get(HOME):
            return cls(Path(home))
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / MARKER).is_file():
                return cls(folder)
        raise StoreUnavailable(
            f"no {MARKER} in {here} or above it; go into a clone of the project, or set {HOME} to one"
        )

    @property
    def artifacts(self) -> Path:
        """The folder that holds the artifacts."""
        return self.root / ARTIFACTS

    def place(self, suite: Suite, artifact: ArtifactId) -> tuple[Path, tuple[str, ...]]:
        """Return where an artifact lies: its folder, and its files inside; no files means the whole folder."""
        suite.require(artifact)
        index = artifact.index or 0
        below = suite.folder(index)
        if artifact.kind == Kind.CHUNK:
            return self.artifacts / "chunks" / below, chunk_files(index, index - suite.phase_of(index).first)
        if artifact.kind == Kind.LOG:
            return self.artifacts / "metrics" / below, (log_name(index),)
        folder = self.artifacts / "checkpoints" / below / f"ckpt_{index:03d}"
        return folder, (OPTIMIZER,) if artifact.kind == Kind.OPTIMIZER else ()

    def resolve(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Return an artifact's address and manifest; raises StoreUnavailable when it is not in this workspace."""
        folder, names = self.place(suite, artifact)
        needed = [folder / name for name in names or (MANIFEST,)]
        needed += [] if artifact.kind == Kind.LOG else [folder / MANIFEST]
        for path in needed:
            if not path.is_file():
                raise self.absent(artifact, path)
        manifest: Mapping[str, Any] = {} if artifact.kind == Kind.LOG else read_manifest(folder)
        location = folder.relative_to(self.root).as_posix()
        files = self._log(suite, artifact) if artifact.kind == Kind.LOG else _entries(folder, manifest, names)
        rest = {k: v for k, v in manifest.items() if k != "files"}
        return Artifact(id=artifact, location=location, commit=None, files=files, manifest=rest)

    def _log(self, suite: Suite, artifact: ArtifactId) -> tuple[FileEntry, ...]:
        folder, (name,) = self.place(suite, artifact)
        return log_entries(folder / name, hashes(record(self.artifacts, suite, artifact.index or 0)))

    def absent(self, artifact: ArtifactId, path: Path) -> StoreUnavailable:
        """Return the error for a file of an artifact that is not here, with the commands that bring it."""
        return StoreUnavailable(
            f"{artifact} is not in this workspace: no {path.relative_to(self.root)} in {self.root}; "
            f"`registry pull {artifact}` brings it from the DVC remote, `make repro` builds it"
        )

    def folder(self, artifact: Artifact) -> Path:
        """Return the folder of a resolved artifact; raises IntegrityError when a checkpoint holds a file too many."""
        folder = self.root / artifact.location
        if artifact.id.kind == Kind.CKPT:
            _refuse_strangers(folder, artifact)
        return folder

    def chunk(self, suite: Suite, artifact: ArtifactId) -> Chunk:
        """Return a chunk's rows in memory, its shard and provenance verified first."""
        from registry.chunks import read_chunk

        return read_chunk(self, suite, artifact)

    def pull(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Bring one artifact from the DVC remote and check its files."""
        from registry.pull import pull

        return pull(self, suite, artifact)

    def indexes(self) -> dict[str, Path]:
        """Return the suites that have an index here, with its file."""
        return {path.stem: path for path in sorted((self.artifacts / "index").glob("*.json"))}

    def read_index(self, suite: str) -> dict[str, Any]:
        """Return a suite's index; raises IntegrityError when it is not one."""
        path = self.indexes()[suite]
        index = read_json(path)
        if not isinstance(index, dict) or index.get("format") != INDEX_FORMAT or index.get("suite") != suite:
            raise IntegrityError(f"{path}: not an index of {suite} ({INDEX_FORMAT}); rebuild it: dvc repro")
        return index


def chunk_files(chunk: int, local: int) -> tuple[str, ...]:
    """Return the files of one chunk: its shard, the array's description, its provenance."""
    return (f"tokens.zarr/c/{local}/0", "tokens.zarr/zarr.json", f"provenance/chunk_{chunk:03d}.parquet")


def current_workspace() -> Workspace:
    """Return the workspace in use: the one given by ``use_store``, else the one found from the working directory."""
    store = active()
    return store if isinstance(store, Workspace) else Workspace.find()


def _entries(folder: Path, manifest: Mapping[str, Any], names: tuple[str, ...]) -> tuple[FileEntry, ...]:
    entries = {e["path"]: FileEntry(**e) for e in manifest.get("files", [])}
    if missing := [name for name in names if name not in entries]:
        raise IntegrityError(f"{folder / MANIFEST}: does not name {missing[0]}; rebuild this folder: dvc repro")
    return tuple(entries[name] for name in names or sorted(entries))


def _refuse_strangers(folder: Path, artifact: Artifact) -> None:
    known = {MANIFEST, *(e.path for e in artifact.files)}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.relative_to(folder).as_posix() not in known:
            raise IntegrityError(f"{path}: not in {MANIFEST}, so it is no part of {artifact.id}; remove it")


def verify_files(folder: Path, artifact: Artifact, names: tuple[str, ...] = ()) -> None:
    """Check an artifact's files, or only ``names``, against their sha256; raises IntegrityError naming the file."""
    for entry in artifact.files:
        if not names or entry.path in names:
            verify_file(folder / entry.path, entry)
