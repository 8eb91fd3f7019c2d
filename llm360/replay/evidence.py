"""What a checkpoint says that it was made from, and whether that is what lies here and runs here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from llm360.code import TRAINING, code_sha256
from llm360.config import fingerprint, short, value_differences
from llm360.environment import environment
from llm360.errors import IntegrityError
from llm360.files import MANIFEST, FileEntry, manifest_sha256, read_json, read_manifest, sha256_file, verify_file
from llm360.train.ledger import passes, phase_started, read_events

What = Literal["environment", "data", "code", "params", "weights", "parent"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Culprit:
    """Why a replay is not the checkpoint, or cannot be made: which part of the evidence, and what about it."""

    what: What
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """One link of a suite's chain of checkpoints, as folders and files of a run.

    folder: the checkpoint; parent: the one that it should follow from; chunks: its phase's. ledger: of the phase;
    kept: the recipe beside the checkpoints (fingerprint.json), which need not be here.
    """

    suite: str
    ckpt: int
    folder: Path
    parent: Path
    chunks: Path
    ledger: Path
    kept: Path

    def __str__(self) -> str:
        return f"{self.suite}/ckpt-{self.ckpt}"

    @functools.cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The checkpoint's manifest; raises IntegrityError when it cannot be read."""
        return read_manifest(self.folder)

    @functools.cached_property
    def events(self) -> list[dict[str, Any]]:
        """The events of the phase; raises IntegrityError when the ledger cannot be read."""
        return read_events(self.ledger)

    @functools.cached_property
    def recipes(self) -> Mapping[Path, Mapping[str, Any]]:
        """The recipe of the run by the file that tells it: the ledger, and fingerprint.json where it is here."""
        told = {self.ledger: phase_started(self.events).get("recipe", {})}
        return told | ({self.kept: read_json(self.kept)} if self.kept.is_file() else {})

    @property
    def world(self) -> dict[str, int]:
        """The ranks and replicas that the checkpoint was made with; 1 and 1 where its manifest does not tell."""
        try:
            told = self.manifest["world"]
            return {"ranks": int(told["ranks"]), "replicas": int(told["replicas"])}
        except (IntegrityError, KeyError, TypeError, ValueError):
            return {"ranks": 1, "replicas": 1}

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe that the checkpoint names by its fingerprint; the ledger's where none is that one."""
        named = [r for r in self.recipes.values() if fingerprint(r) == self.manifest.get("fingerprint")]
        return (named or [self.recipes[self.ledger]])[0]


def altered(link: Link) -> list[Culprit]:
    """Return every part of the evidence that is not what something else here says it was; empty when all agree."""
    checks: tuple[tuple[What, Callable[[Link], Iterator[str]]], ...] = (
        ("weights", _own_files),
        ("parent", _parent_files),
        ("data", _chunk_files),
        ("params", _recipes),
    )
    found: list[Culprit] = []
    for what, check in checks:
        try:
            for detail in check(link):
                found.append(Culprit(what=what, detail=detail))
        except IntegrityError as error:  # a manifest or recipe that cannot be read at all
            found.append(Culprit(what=what, detail=str(error)))
        except (KeyError, TypeError, AttributeError) as error:  # one that reads otherwise than it was written
            found.append(Culprit(what=what, detail=f"a field of the evidence is gone or of another type: {error!r}"))
    return found


def _own_files(link: Link) -> Iterator[str]:
    saved = [e for e in link.events if e["event"] == "checkpoint_saved" and e["ckpt"] == link.ckpt]
    here = manifest_sha256(link.folder)
    if not saved:
        yield f"{link.ledger}: tells of no checkpoint {link.ckpt}; pull the whole ledger"
    elif saved[-1]["manifest_sha256"] != here:
        yield f"{link.folder / MANIFEST}: sha256 {here}, but {link.ledger} saved {saved[-1]['manifest_sha256']}"
    yield from _altered_files(link.folder)


def _altered_files(folder: Path) -> Iterator[str]:
    for entry in read_manifest(folder)["files"]:
        yield from _altered_file(folder / entry["path"], FileEntry(**entry))


def _altered_file(path: Path, entry: FileEntry) -> Iterator[str]:
    try:
        verify_file(path, entry)
    except IntegrityError as error:
        yield str(error)


def _parent_files(link: Link) -> Iterator[str]:
    here, named = sha256_file(link.parent / MANIFEST), link.manifest["parent"]
    if here != named:
        yield f"{link.parent / MANIFEST}: sha256 {here}, but {link} names {named} as its parent"
    yield from _altered_files(link.parent)


def _chunk_files(link: Link) -> Iterator[str]:
    here, named = sha256_file(link.chunks / MANIFEST), link.recipe.get("chunks")
    if here != named:
        yield f"{link.chunks / MANIFEST}: sha256 {here}, but the run's recipe names {named}: the chunks were made anew"
    read_manifest(link.chunks)
    told = [p.sha256 for p in passes(link.events) if p.ckpt == link.ckpt]
    for entry in (FileEntry(**e) for e in link.manifest["chunk_files"]):
        if told and entry.sha256 not in told:
            yield f"{entry.path}: sha256 {entry.sha256} in {link.folder / MANIFEST}, but {link.ledger} read {told[0]}"
        yield from _altered_file(link.chunks / entry.path, entry)


def _recipes(link: Link) -> Iterator[str]:
    """Name the file whose recipe is not the one of the fingerprint, and in which values, as recorded -> here."""
    named, good = link.manifest.get("fingerprint"), link.recipe
    for path, recipe in link.recipes.items():
        found = fingerprint(recipe)
        if found == named:
            continue
        changes = [f"{key}: {short(a)} -> {short(b)}" for key, a, b in value_differences(good, recipe)]
        yield f"{path}: {', '.join(changes) or 'the recipe'} (fingerprint {found}, but {link} names {named})"


def setting() -> dict[str, Any]:
    """Return what a replay depends on beside its evidence: the environment and the code of this process."""
    return {"environment": environment(), "code": code_sha256(*TRAINING)}


def circumstances(link: Link, *, ranks: int, changed: Mapping[str, Any]) -> list[Culprit]:
    """Return how this process and the asked-for params differ from the recorded ones, each as recorded -> here."""
    here, then = setting(), link.recipe
    found = [
        Culprit(what="params", detail=f"{k}: {short(at(then['params'], k))} -> {short(v)}") for k, v in changed.items()
    ]
    for key, a, b in value_differences(then["environment"], here["environment"]):
        found.append(Culprit(what="environment", detail=f"{key}: {short(a)} -> {short(b)}"))
    if (recorded := link.world["ranks"]) != ranks:
        found.append(Culprit(what="environment", detail=f"ranks: {recorded} -> {ranks}"))
    if then.get("code") != here["code"]:
        detail = f"sha256 {then.get('code')} -> {here['code']} of {', '.join(TRAINING)}"
        found.append(Culprit(what="code", detail=detail))
    return found


def at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    found: Any = values
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
