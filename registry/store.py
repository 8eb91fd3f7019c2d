"""What a place that holds artifacts can do, and which one is in use."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from llm360.files import FileEntry
from registry.ids import ArtifactId
from registry.suite import Suite

if TYPE_CHECKING:
    from registry.chunks import Chunk
    from registry.streamed import StreamedChunk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact's address and manifest; none of its large files were read or moved.

    location is a path below the workspace or ``hf://repo@branch``. commit is the Hub's commit, None in a workspace
    and None when the Hub could not be asked. files are those whose sha256 is known, paths relative to the folder.
    """

    id: ArtifactId
    location: str
    commit: str | None
    files: tuple[FileEntry, ...]
    manifest: Mapping[str, Any]


class Store(Protocol):
    """A place that holds artifacts: a workspace's folder, the Hub, a mirror, a test's double."""

    def resolve(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Return an artifact's address and manifest; raises StoreUnavailable when it is not to be had here."""
        ...

    def folder(self, artifact: Artifact) -> Path:
        """Return the local folder of an artifact's files, brought here when they are not."""
        ...

    def chunk(self, suite: Suite, artifact: ArtifactId) -> Chunk | StreamedChunk:
        """Return a chunk's rows of tokens and where they are from: in memory, or as they come."""
        ...

    def pull(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Bring exactly one artifact here and check its files."""
        ...


_active: ContextVar[Store | None] = ContextVar("store", default=None)


@contextlib.contextmanager
def use_store(store: Store) -> Iterator[None]:
    """Resolve every suite in ``store`` inside the block: tests, mirrors, another workspace."""
    token = _active.set(store)
    try:
        yield
    finally:
        _active.reset(token)


def active() -> Store | None:
    """Return the store given by ``use_store``, if any."""
    return _active.get()


def store_for(suite: Suite) -> Store:
    """Return the store in use for a suite: the one given, else the Hub for released suites, else the workspace."""
    if (store := active()) is not None:
        return store
    if suite.hub is not None:
        from registry.hub import HubStore

        return HubStore()
    from registry.workspace import Workspace

    return Workspace.find()
