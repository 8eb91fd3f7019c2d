"""The Hugging Face Hub as a store: a suite's branch, pinned to the commit it points at, and the Hub's own hashes.

Small on purpose; offline it answers from the Hub's cache on this machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llm360.errors import IntegrityError, NotFound, StoreUnavailable
from llm360.files import FileEntry, verify_file
from llm360.progress import say
from registry.ids import ArtifactId, Kind
from registry.store import Artifact
from registry.suite import Hub, Suite

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from registry.streamed import StreamedChunk

T = TypeVar("T")
Pinned = tuple[str, tuple[FileEntry, ...]]  # a commit, and its files whose sha256 is known
SMALL = ("*.json", "tokenizer.model")  # never *.py: no code from artifacts
SHA256_HEX = 64
MAIN = "main"  # the branch that a data set is read at
DATASETS = "datasets/"  # how a location names a data set's repository


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubStore:
    """Checkpoints of released suites on the Hub. Implements Store; None means the Hub client's own setting."""

    endpoint: str | None = None
    cache: Path | None = None

    def resolve(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Return branch, commit and hashed files; offline, those of the cache, or none (commit is None).

        Raises NotFound for a checkpoint that has no branch, StoreUnavailable when only the Hub could tell.
        """
        if artifact.kind == Kind.CHUNK:
            from registry.released import resolve_chunk

            return resolve_chunk(self, suite, artifact)
        hub, ckpt = self._require(suite, artifact)
        branch = suite.revision(ckpt)
        commit, files = self._pinned(hub.repo, branch) or (None, ())
        numbers = {"step": suite.steps_at(ckpt), "tokens_seen": suite.tokens_at(ckpt)}
        manifest = {"format": "huggingface", "suite": suite.name, "ckpt": ckpt, **numbers}
        return Artifact(
            id=artifact, location=f"hf://{hub.repo}@{branch}", commit=commit, files=files, manifest=manifest
        )

    def folder(self, artifact: Artifact) -> Path:
        """Return the snapshot of the commit, downloading what is missing; raises StoreUnavailable offline."""
        repo, branch = artifact.location.removeprefix("hf://").split("@")
        folder = self._snapshot(repo, branch, artifact.files) if artifact.commit else None
        if folder is None or any(not (folder / f.path).exists() for f in artifact.files):
            raise StoreUnavailable(
                f"{artifact.id} is {branch} of {repo}, which is not cached here and the Hub cannot be reached; "
                f"with a network: `registry pull {artifact.id}` (or `hf download {repo} --revision {branch}`)"
            )
        if folder.name != artifact.commit:
            raise IntegrityError(
                f"{artifact.id}: {branch} of {repo} moved from commit {artifact.commit} to {folder.name} meanwhile; "
                f"resolve it again, and compare before you trust it"
            )
        return folder

    def chunk(self, suite: Suite, artifact: ArtifactId) -> StreamedChunk:
        """Return a released chunk, read row by row and never whole; raises StoreUnavailable offline."""
        from registry.released import stream_chunk

        return stream_chunk(self, suite, artifact)

    def pull(self, suite: Suite, artifact: ArtifactId) -> Artifact:
        """Download one checkpoint, or one chunk's file, into the Hub's cache and check its files."""
        found = self.resolve(suite, artifact)
        folder = self.folder(found)
        for entry in found.files:
            verify_file(folder / entry.path, entry)
        return found

    def published(self, suite: Suite) -> list[int]:
        """Return a suite's checkpoints as the repository's branches name them; offline those that are known."""
        hub = suite.hub
        if hub is None or hub.ckpts is None:
            return list(suite.indices())
        branches = online(lambda: self._branches(hub.repo), what=hub.repo)
        if branches is None:
            say(f"{suite.name}: the Hub cannot be reached; {len(hub.ckpts)} checkpoints are known here, more are there")
            return list(hub.ckpts)
        found = {suite.revisions.ckpt(suite, branch) for branch in branches}
        return sorted(i for i in found if i is not None)

    def _require(self, suite: Suite, artifact: ArtifactId) -> tuple[Hub, int]:
        suite.require(artifact)
        hub, index = suite.hub, artifact.index or 0
        if hub is None:
            raise StoreUnavailable(f"{artifact}: {suite.name} is not on the Hub; it is built by `make repro`")
        if artifact.kind != Kind.CKPT:
            raise StoreUnavailable(
                f"{artifact}: only checkpoints and chunks are read from the Hub; see the files of {hub.repo} and of "
                f"datasets/{hub.dataset}"
            )
        if hub.ckpts is not None and index not in hub.ckpts:
            self._require_branch(suite, hub, artifact)
        return hub, index

    def _require_branch(self, suite: Suite, hub: Hub, artifact: ArtifactId) -> None:
        branches = online(lambda: self._branches(hub.repo), what=hub.repo)
        if branches is None:
            raise StoreUnavailable(
                f"{artifact}: only the Hub knows whether it exists, and it cannot be reached; known here: nearest "
                f"{suite.nearest(artifact)}; `registry ls {suite.name}` shows them all"
            )
        if suite.revision(artifact.index or 0) not in branches:
            raise NotFound(f"{artifact}: no such branch in {hub.repo}; nearest known: {suite.nearest(artifact)}")

    def api(self) -> HfApi:
        """Return the Hub's client."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint)

    def _branches(self, repo: str) -> frozenset[str]:
        return frozenset(ref.name for ref in self.api().list_repo_refs(repo).branches)

    def _pinned(self, repo: str, branch: str) -> Pinned | None:
        return online(lambda: self._ask(repo, branch), what=f"{branch} of {repo}") or self._cached(repo, branch)

    def _ask(self, repo: str, branch: str) -> Pinned:
        info = self.api().model_info(repo, revision=branch, files_metadata=True)
        siblings = list(info.siblings or ())
        safe = any(s.rfilename.endswith(".safetensors") for s in siblings)
        wanted = (".safetensors" if safe else ".bin", ".json", "tokenizer.model")
        files = [_entry(s) for s in siblings if s.lfs is not None and s.rfilename.endswith(wanted)]
        if info.sha is None:
            raise NotFound(f"{repo}: the Hub names no commit for {branch}; try again, or ask for another branch")
        return info.sha, tuple(files)

    def _cached(self, repo: str, branch: str) -> Pinned | None:
        """Return commit and hashed files of a cached snapshot: the cache names large files by their sha256."""
        folder = self._snapshot(repo, branch, None)
        if folder is None:
            return None
        blobs = {p: p.resolve().name for p in sorted(folder.rglob("*")) if p.is_file()}
        large = [p for p, blob in blobs.items() if len(blob) == SHA256_HEX]
        files = [cached_entry(folder, path, blobs[path]) for path in large]
        return folder.name, tuple(files)

    def _snapshot(self, repo: str, revision: str, files: tuple[FileEntry, ...] | None) -> Path | None:
        """Return a snapshot's folder, None when it is not to be had; without ``files`` only from the cache."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        patterns = None if files is None else [*SMALL, *(f.path for f in files)]
        name = repo.removeprefix(DATASETS)
        try:
            folder: str | None = snapshot_download(
                name,
                repo_type="model" if name == repo else "dataset",
                revision=revision,
                local_files_only=files is None,
                allow_patterns=patterns,
                endpoint=self.endpoint,
                cache_dir=self.cache,
            )
        except LocalEntryNotFoundError as error:  # names the folder when only files of no use here are missing
            folder = getattr(error, "snapshot_path", None) if files is None else None
        except transport_error():
            return None
        return None if folder is None else Path(folder)


def online(ask: Callable[[], T], *, what: str) -> T | None:
    """Return what the Hub answers, None when it cannot be reached; raises NotFound when it says no."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        return ask()
    except HfHubHTTPError as error:
        if error.response.status_code >= 500:
            return None
        status = error.response.status_code
        raise NotFound(f"{what}: the Hub answers {status}; it is not there, or it needs `hf auth login`") from error
    except (transport_error(), OfflineModeIsEnabled):
        return None


def transport_error() -> type[Exception]:
    """Return the base of what the Hub's client raises without a network: that of httpx or of httpx2."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    return cast(type[Exception], HTTPError)


def _entry(sibling: Any) -> FileEntry:
    return FileEntry(path=sibling.rfilename, bytes=int(sibling.lfs.size), sha256=str(sibling.lfs.sha256))


def cached_entry(folder: Path, path: Path, sha256: str) -> FileEntry:
    """Return the entry of a file in the Hub's cache, whose blob is named by its sha256."""
    return FileEntry(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=sha256)
