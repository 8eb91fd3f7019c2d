"""``registry.replay``: does a checkpoint follow from its parent and its chunk? And the audit of a whole suite."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import MANIFEST, PARTIAL, sha256_file
from registry import catalog
from registry.history import History
from registry.ids import ArtifactId, Kind
from registry.workspace import Workspace

if TYPE_CHECKING:
    from llm360.replay.evidence import Link
    from llm360.replay.replay import ReplayReport
    from llm360.train.distributed import World

FOLDER = "replays"


def replay(suite: str, *, ckpt: int | str, params: Mapping[str, Any] | None = None) -> ReplayReport:
    """Make a checkpoint again from its parent and its chunk and compare every byte; nothing here is changed.

    >>> registry.replay("amber-mini", ckpt=17).identical
    >>> registry.replay("amber-mini", ckpt=17, params={"schedule.peak": 1e-3}).files  # what if

    It runs with the recorded number of threads, and of ranks by torchrun. Raises NotReleased for a suite whose order
    or ledger was not published or that was fine-tuned, StoreUnavailable naming what is not in this workspace,
    ConfigError for a param that there is not, and IntegrityError for a ledger that cannot be read.
    """
    history = History.of(suite)
    return _replayed(history, link(history, history.suite.ckpt(ckpt)), params or {})


def _replayed(history: History, link: Link, params: Mapping[str, Any]) -> ReplayReport:
    from llm360.config import from_mapping
    from llm360.replay.replay import ReplayReport
    from registry.ranks import with_recorded_ranks

    values = with_recorded_ranks("replay", link, history.workspace, params=dict(params))
    return from_mapping(ReplayReport, values, where=f"report of {link}")


def replay_here(*, world: World, suite: str, ckpt: int, params: Mapping[str, Any]) -> dict[str, Any]:
    """Replay a checkpoint as one of the ranks of ``world``; return the report as JSON values."""
    from llm360.replay.replay import replay as run

    history = History.of(suite)
    scratch = history.workspace.artifacts / FOLDER / f"{PARTIAL}{suite}-{ckpt}"
    return dataclasses.asdict(run(link(history, ckpt), changed=params, scratch=scratch, world=world))


def link(history: History, ckpt: int) -> Link:
    """Return a checkpoint with what it was made from; raises StoreUnavailable naming what is not here."""
    from llm360.replay.evidence import Link

    suite, artifacts = history.suite, history.workspace.artifacts
    wanted = ArtifactId(suite=suite.name, kind=Kind.CKPT, index=ckpt)
    folder, _ = history.workspace.place(suite, wanted)
    phase = suite.phase_of(ckpt)
    found = Link(
        suite=suite.name,
        ckpt=ckpt,
        folder=folder,
        parent=folder.parent / f"ckpt_{ckpt - 1:03d}" if ckpt > phase.first else artifacts / start_of(history, ckpt),
        chunks=artifacts / "chunks" / suite.folder(ckpt),
        ledger=history.ledger(phase),
        kept=folder.parent / "fingerprint.json",
    )
    for place in (found.folder, found.parent, found.chunks):
        if not (place / MANIFEST).is_file():
            raise _absent(history.workspace, found, place)
    found.events  # noqa: B018  a ledger that cannot be read is an error, not a verdict: all links depend on it
    return found


def start_of(history: History, ckpt: int) -> str:
    """Return where the checkpoint lies that a phase started from, below the artifacts."""
    from llm360.train.ledger import phase_started

    phase = history.suite.phase_of(ckpt)
    recipe = phase_started(history.events(phase)).get("recipe")
    if recipe is None:
        raise IntegrityError(
            f"{history.ledger(phase)}: its phase_started has no recipe, so nothing says how {history.suite.name} was "
            f"trained; the ledger is of an older version: train again (make repro) or pull it"
        )
    return str(recipe["params"]["start"])


def _absent(workspace: Workspace, link: Link, place: Path) -> StoreUnavailable:
    below = place.relative_to(workspace.root).as_posix()
    return StoreUnavailable(
        f"{link} cannot be replayed: {below} is not in this workspace; `dvc pull {below}` brings it, "
        f"`make repro` builds it"
    )


def audited_suites() -> list[str]:
    """Return the suites that were trained on chunks in this workspace: those that have a ledger here."""
    return [name for name in catalog.names() if _trained_here(name)]


def _trained_here(name: str) -> bool:
    suite = catalog.find(name)
    if suite.hub is not None or suite.base is not None:
        return False
    history = History.of(name)
    return any(history.ledger(phase).is_file() for phase in suite.phases)


def replay_all(suite: str) -> Iterator[ReplayReport]:
    """Replay a suite's checkpoints in order and yield each verdict as it is known.

    Verdicts are kept in artifacts/replays/<suite>.jsonl. A checkpoint that was identical once is not trained again
    under the same manifest, environment and code, but its files, its parent's and its chunk's are hashed each time;
    one that differed is replayed anew. Raises what ``replay`` raises.
    """
    from llm360.train.ledger import Ledger

    history = History.of(suite)
    verdicts = Ledger(history.workspace.artifacts / FOLDER / f"{suite}.jsonl")
    proven = {_key(v) for v in verdicts.events() if v["identical"]}
    for ckpt in history.suite.indices():
        one = link(history, ckpt)
        found = _proven_before(one, proven) or _replayed(history, one, {})
        verdicts.record(_verdict(one, found, history.workspace.root))
        yield found


def _proven_before(link: Link, proven: Collection[str]) -> ReplayReport | None:
    from llm360.replay.evidence import altered
    from llm360.replay.replay import confirmed

    return confirmed(link) if proven and _key(_about(link)) in proven and not altered(link) else None


def _about(link: Link) -> dict[str, Any]:
    """Return what a verdict holds for: the checkpoint with all that it names, and where it was replayed."""
    from llm360.replay.evidence import setting
    from llm360.replay.replay import recorded_setting

    with recorded_setting(link):
        here = setting()
    return {"ckpt": link.ckpt, "manifest_sha256": sha256_file(link.folder / MANIFEST), **here}


def _key(verdict: Mapping[str, Any]) -> str:
    return json.dumps({k: verdict[k] for k in ("ckpt", "manifest_sha256", "environment", "code")}, sort_keys=True)


def _verdict(link: Link, report: ReplayReport, root: Path) -> dict[str, Any]:
    """Return the line of a verdict; as in every artifact, paths are those below the workspace."""
    culprits = [{"what": c.what, "detail": c.detail.replace(f"{root}/", "")} for c in report.culprits]
    return {**_about(link), "identical": report.identical, "culprits": culprits}
