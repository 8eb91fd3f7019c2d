"""The sources: one file each in this folder, holding one constant ``SOURCE``.

To add a source, add a file and name it in the section ``sources`` of the parameters.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

from llm360.data.documents import KINDS
from llm360.data.packaged.packages import Package
from llm360.data.packaged.readers import Text
from llm360.errors import ConfigError, SourceError, did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A corpus that packages ship.

    name is the file's name with ``-`` for ``_``; kind is one of KINDS; licence is an SPDX id or a short name of the
    text's licence; reads are patterns (as of fnmatch) of the archive members to unpack; documents yields
    (origin, text) from the folder they were unpacked to. No packages: the text is the standard library's.
    """

    name: str
    kind: str
    packages: tuple[Package, ...]
    reads: tuple[str, ...]
    licence: str
    documents: Callable[[Path], Iterator[Text]]


@functools.cache
def sources() -> dict[str, Source]:
    """Return every source of this folder by name; raises SourceError on a file that is broken."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {source.name: source for source in map(load, modules)}


def load(module: str) -> Source:
    """Import one source file; raises SourceError saying what is wrong with it."""
    where = f"llm360/data/sources/{module}.py"
    try:
        source = importlib.import_module(f"{__name__}.{module}").SOURCE
    except Exception as error:
        raise SourceError(f"{where}: {type(error).__name__}: {error}; mend the file or remove it") from error
    if not isinstance(source, Source):
        raise SourceError(f"{where}: SOURCE is {source!r}, expected a Source")
    if source.name != module.replace("_", "-"):
        raise SourceError(f"{where}: names itself {source.name!r}, expected {module.replace('_', '-')!r}")
    if source.kind not in KINDS:
        raise SourceError(f"{where}: kind {source.kind!r}; {did_you_mean(source.kind, KINDS)}")
    return source


def named(names: tuple[str, ...], *, kind: str) -> list[Source]:
    """Return the sources of these names; raises ConfigError for one that is unknown or of another kind.

    Raises SourceError when there is no name.
    """
    if not names:
        raise SourceError(
            f"sources.{kind}: names no source, as nothing that can be had here ships this corpus; "
            f"add a file to llm360/data/sources that reads a copy of it, and name it there"
        )
    for name in names:
        if name not in sources():
            raise ConfigError(f"sources.{kind}: no source {name!r}; {did_you_mean(name, sources())}")
        if sources()[name].kind != kind:
            same = ", ".join(s.name for s in sources().values() if s.kind == kind)
            raise ConfigError(f"sources.{kind}: {name!r} is of kind {sources()[name].kind}; of kind {kind} are {same}")
    return [sources()[name] for name in names]
