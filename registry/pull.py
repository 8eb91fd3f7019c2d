"""Bring exactly one artifact from the workspace's DVC remote, then check it.

Only files that are missing or altered are asked for: a granular ``dvc pull`` that has nothing to fetch leaves DVC in
a state in which a later full pull can delete the folder (dvc issue 10492).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import MANIFEST
from llm360.progress import say
from registry.ids import ArtifactId, Kind
from registry.store import Artifact
from registry.suite import Suite

if TYPE_CHECKING:
    from registry.workspace import Workspace


def pull(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> Artifact:
    """Bring one artifact; raises StoreUnavailable with DVC's own words, IntegrityError when what came is not whole."""
    if (here := _whole(workspace, suite, artifact)) is not None:
        say(f"{artifact}: already here and whole")
        return here
    _dvc_pull(workspace.root, artifact, targets(workspace, suite, artifact))
    return _verified(workspace, suite, artifact)


def targets(workspace: Workspace, suite: Suite, artifact: ArtifactId) -> list[str]:
    """Return what DVC is asked for, relative to the root: a checkpoint's folder, else files and their manifest."""
    folder, names = workspace.place(suite, artifact)
    manifest = () if artifact.kind == Kind.LOG else (MANIFEST,)
    paths = [folder / name for name in (*names, *manifest)] if names else [folder]
    return [path.relative_to(workspace.root).as_posix() for path in paths]


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


def _dvc_pull(root: Path, artifact: ArtifactId, wanted: Sequence[str]) -> None:
    if not (root / ".dvc").is_dir():
        raise StoreUnavailable(f"{artifact}: {root} is no DVC workspace, so there is no remote; `make repro` builds it")
    say(f"dvc pull {' '.join(wanted)}")
    # --force: only a file that fails its check is overwritten, whole ones were not asked for
    command = [sys.executable, "-m", "dvc", "pull", "--force", "--quiet", *wanted]
    done = subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise StoreUnavailable(
            f"{artifact}: dvc pull failed ({words[0]}); see `dvc remote list`, or build it: make repro"
        )
