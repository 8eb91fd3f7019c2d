"""Bring exactly one artifact from the workspace's DVC remote, then check it. Nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import MANIFEST, copy_file
from llm360.progress import say
from registry.ids import ArtifactId, Kind
from registry.logs import record
from registry.remote import fetch, file_md5
from registry.store import Artifact
from registry.suite import Suite

if TYPE_CHECKING:
    from registry.workspace import Workspace


def pull(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> Artifact:
    """Bring one artifact; what is here stays as it is until all that is needed has come.

    Raises StoreUnavailable with DVC's own words, IntegrityError when what came is not whole.
    """
    here = _whole(workspace, suite, artifact)
    if here is not None and here.files:
        say(f"{artifact}: already here and whole")
        return here
    wanted = targets(workspace, suite, artifact)
    try:
        _place(workspace.root, fetch(workspace.root, wanted))
    except StoreUnavailable as error:
        if here is None:
            raise StoreUnavailable(f"{artifact}: {error}") from error
        say(f"{artifact}: here, but NOT checked: no ledger names its sha256 and none came ({error})")
        return here
    return _told(_verified(workspace, suite, artifact))


def targets(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> list[str]:
    """Return what is asked for, relative to the root: a checkpoint's folder, else files and what has their hashes.

    A ledger that is here is left alone: a run may be appending to it.
    """
    folder, names = workspace.place(suite, artifact)
    paths = [folder / name for name in names] or [folder]
    if artifact.kind == Kind.LOG:
        known = record(workspace.artifacts, suite, artifact.index or 0)
        paths += [known] if known.name == MANIFEST or not known.is_file() else []
    elif names:
        paths.append(folder / MANIFEST)
    return [path.relative_to(workspace.root).as_posix() for path in paths]


def _place(root: Path, objects: Mapping[Path, Path]) -> None:
    """Copy each object to its place unless the same bytes are there; a link would share later changes."""
    for path, source in sorted(objects.items()):
        target = root / path
        if not target.is_file() or file_md5(target) != file_md5(source):
            copy_file(source, target)


def _told(artifact: Artifact) -> Artifact:
    if not artifact.files:
        say(f"{artifact.id}: brought, but NOT checked: no ledger names its sha256")
    return artifact


def _whole(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> Artifact | None:
    try:
        return _verified(workspace, suite, artifact)
    except (StoreUnavailable, IntegrityError):
        return None


def _verified(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> Artifact:
    from registry.workspace import verify_files

    found = workspace.resolve(suite, artifact)
    verify_files(workspace.folder(found), found)
    return found
