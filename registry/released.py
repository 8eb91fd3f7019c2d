"""Released chunks on the Hub: where a chunk's file is, pinned to a commit, and how its bytes are read from there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from llm360.errors import NotFound, StoreUnavailable
from llm360.files import FileEntry
from registry.hub import MAIN, Pinned, cached_entry, online, transport_error
from registry.ids import ArtifactId
from registry.store import Artifact
from registry.streamed import StreamedChunk
from registry.suite import ChunkLines, Suite

if TYPE_CHECKING:
    from registry.hub import HubStore


@dataclasses.dataclass(frozen=True)
class ChunkFile:
    """One chunk's file in a data set on the Hub."""

    store: HubStore
    dataset: str
    path: str

    def pinned(self) -> Pinned | None:
        """Return the commit of the data set's head and the file's size and sha256; offline, those of the cache."""
        return online(self._ask, what=f"{self.path} of datasets/{self.dataset}") or self._cached()

    def _ask(self) -> Pinned:
        api = self.store.api()
        commit = api.dataset_info(self.dataset, revision=MAIN).sha or ""
        found = api.get_paths_info(self.dataset, [self.path], revision=commit, repo_type="dataset")
        lfs = getattr(found[0], "lfs", None) if found else None
        if lfs is None:
            raise NotFound(f"datasets/{self.dataset}: no {self.path} with a sha256 at commit {commit}; see its files")
        return commit, (FileEntry(path=self.path, bytes=int(lfs.size), sha256=str(lfs.sha256)),)

    def _cached(self) -> Pinned | None:
        path = self.cached(MAIN)
        if path is None:
            return None
        folder = path.parents[self.path.count("/")]
        return folder.name, (cached_entry(folder, path, path.resolve().name),)

    def cached(self, revision: str) -> Path | None:
        """Return the file in the Hub's cache on this machine, None when it is not there."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(
            self.dataset, self.path, cache_dir=self.store.cache, revision=revision, repo_type="dataset"
        )
        return Path(found) if isinstance(found, str) else None

    @contextlib.contextmanager
    def open(self, commit: str) -> Iterator[BinaryIO]:
        """Open the file of a commit, in the cache or else on the Hub, where each read is a request for these bytes."""
        if (path := self.cached(commit)) is not None:
            with open(path, "rb") as handle:
                yield handle
            return
        from huggingface_hub import HfFileSystem

        hub = HfFileSystem(endpoint=self.store.endpoint, skip_instance_cache=True)
        try:
            with hub.open(f"datasets/{self.dataset}@{commit}/{self.path}", "rb", cache_type="none") as remote:
                yield cast(BinaryIO, remote)
        except FileNotFoundError as error:
            raise NotFound(f"datasets/{self.dataset}: no {self.path} at commit {commit}; resolve it again") from error
        except (transport_error(), OSError) as error:
            raise StoreUnavailable(
                f"{self.path} of datasets/{self.dataset}: the Hub stopped answering ({str(error).splitlines()[0]}); "
                f"rows that came before are sound: go on with rows(start=...)"
            ) from error


def resolve_chunk(store: HubStore, suite: Suite, artifact: ArtifactId) -> Artifact:
    """Return a chunk's file, pinned to a commit; offline and not cached, only its address (commit is None)."""
    file, lines = _file(store, suite, artifact)
    commit, files = file.pinned() or (None, ())
    manifest = {"format": "jsonl", "suite": suite.name, "chunk": artifact.index, **dataclasses.asdict(lines)}
    manifest["path"] = file.path
    location = f"hf://datasets/{file.dataset}@{MAIN}"
    return Artifact(id=artifact, location=location, commit=commit, files=files, manifest=manifest)


def stream_chunk(store: HubStore, suite: Suite, artifact: ArtifactId) -> StreamedChunk:
    """Return a chunk that is read as it comes; raises StoreUnavailable offline when it is not cached."""
    file, lines = _file(store, suite, artifact)
    found = resolve_chunk(store, suite, artifact)
    if found.commit is None:
        raise StoreUnavailable(
            f"{artifact} is {file.path} of datasets/{file.dataset}, which is not cached here and the Hub cannot be "
            f"reached; with a network it is streamed, and `registry pull {artifact}` brings it whole"
        )
    commit = found.commit
    return StreamedChunk(
        id=artifact,
        phase=suite.phase_of(artifact.index or 0).name,
        index=artifact.index or 0,
        artifact=found,
        lines=lines,
        source=lambda: file.open(commit),
    )


def _file(store: HubStore, suite: Suite, artifact: ArtifactId) -> tuple[ChunkFile, ChunkLines]:
    suite.require(artifact)
    if suite.hub is None:
        raise StoreUnavailable(f"{artifact}: {suite.name} is not on the Hub; it is built by `make repro`")
    if suite.hub.chunks is None:
        raise StoreUnavailable(f"{artifact}: the files of datasets/{suite.hub.dataset} are of no layout that is read")
    path = suite.hub.chunks.path.format(chunk=artifact.index)
    return ChunkFile(store, suite.hub.dataset, path), suite.hub.chunks
