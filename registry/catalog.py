"""Which suites there are: the files of ``registry/suites``, and what the workspace has an index for."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from llm360.errors import IntegrityError, RegistryError, StoreUnavailable, UnknownSuite, did_you_mean
from registry.ids import SUITE_NAME, ArtifactId
from registry.suite import Phase, Suite
from registry.workspace import current_workspace

# Imported here, before the package binds its function of the same name, which a later import would hide.
FILES = importlib.import_module("registry.suites")


def names() -> list[str]:
    """Return the names of all suites, sorted."""
    return sorted({*_released(), *_index_files()})


def find(name: str) -> Suite:
    """Return a suite by name; raises UnknownSuite with the nearest names."""
    if name in _released():
        return _released()[name]
    if name not in _index_files():
        raise UnknownSuite(f"unknown suite {name!r}; {_instead(str(name))}")
    return from_index(current_workspace().read_index(name))


def _instead(name: str) -> str:
    """Return what there is in place of an index: artifacts of that name, no workspace, or names like it."""
    try:
        artifacts = current_workspace().artifacts
    except StoreUnavailable as error:
        return f"{did_you_mean(name, names())}; {error}"
    for kind in ("chunks", "checkpoints"):
        if SUITE_NAME.fullmatch(name) and (artifacts / kind / name).is_dir():
            return (
                f"artifacts/{kind}/{name} is here but its index is not: dvc repro index@{name} "
                f"(the name must be in `suites`)"
            )
    return did_you_mean(name, names())


@functools.cache
def _released() -> Mapping[str, Suite]:
    return discover(FILES)


def discover(package: ModuleType) -> dict[str, Suite]:
    """Import every file of a package of suites; raises RegistryError naming the file that is broken."""
    found = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        suite = _read(f"{package.__name__}.{module}")
        if suite.name != module.replace("_", "-"):
            raise RegistryError(
                f"{module}.py: its SUITE is named {suite.name!r}, expected {module.replace('_', '-')!r}"
            )
        found[suite.name] = suite
    return found


def _read(module: str) -> Suite:
    try:
        suite = getattr(importlib.import_module(module), "SUITE", None)
    except Exception as error:
        raise RegistryError(
            f"{module}: cannot be imported ({type(error).__name__}: {error}); mend that file"
        ) from error
    if not isinstance(suite, Suite):
        raise RegistryError(f"{module}: SUITE is {suite!r}, expected one constant SUITE = Suite(...)")
    return suite


def _index_files() -> dict[str, Path]:
    try:
        return current_workspace().indexes()
    except StoreUnavailable:  # outside a workspace only the suites with a file are known
        return {}


def from_index(index: Mapping[str, Any]) -> Suite:
    """Return the suite that an index describes; raises IntegrityError when its numbers do not go on from its branch."""
    name, count = index["suite"], len(index["checkpoints"])
    base, branch = (ArtifactId.parse(index[key]) if index[key] else None for key in ("base", "branch"))
    phases = tuple(Phase(name=p["name"], first=p["first"], last=p["last"]) for p in index["phases"])
    first = 0 if branch is None else (branch.index or 0) + 1
    if phases and phases[0].first != first:
        after = f", for it branched off {branch}" if branch else ""
        read = f"index of {name}: it begins at {phases[0].first}, expected {first}{after}"
        raise IntegrityError(f"{read}; rebuild it: dvc repro index@{name}")
    kind = f"branched off {branch}, " if branch else ""
    return Suite(
        name=name,
        title=f"{kind}built in this workspace: {count} checkpoint{'s' if count != 1 else ''}",
        phases=phases,
        base=base,
        branch=branch,
    )
