"""From sources to the documents of one kind: read, split, sampled to a limit; what is left out is counted."""

from __future__ import annotations

import dataclasses
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llm360.config import require_positive
from llm360.data.documents import Document, write_documents
from llm360.data.packaged.archives import unpack
from llm360.data.packaged.packages import Package, recorded
from llm360.data.packaged.readers import Text
from llm360.data.sources import Source, named
from llm360.errors import DataError, SourceError
from llm360.files import sha256_bytes, verify, write_manifest

Skipped = dict[str, str]  # origin (with its source), reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The text of one kind: its sources, the most of it in MB (10^6 bytes), and the longest document in kB.

    tokens is the size that the planner reckons with where the text itself is not at hand.
    """

    names: tuple[str, ...]
    limit_mb: float
    part_kb: int
    tokens: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "limit_mb", "part_kb", *(("tokens",) if self.tokens is not None else ()))

    @property
    def decisions(self) -> dict[str, Any]:
        """What decides the documents, for their manifest."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "tokens"}


def needed_packages(selections: Mapping[str, Selection]) -> list[Package]:
    """Return the packages that the sources of all kinds need; raises ConfigError for a source that is unknown."""
    return [p for kind, chosen in selections.items() for s in named(chosen.names, kind=kind) for p in s.packages]


def collect(kind: str, selection: Selection, *, packages: Path, out: Path) -> None:
    """Write the documents of ``kind`` and their manifest into the empty folder ``out``.

    ``packages`` holds what fetch_packages brought. Every source gives an equal share of the limit, as far as it
    has the text. Raises DataError when a source gives no document, IntegrityError for an altered package.
    """
    chosen = named(selection.names, kind=kind)
    skipped: list[Skipped] = []
    pools = {s.name: read(s, packages=packages, part_bytes=selection.part_kb * 1000, skipped=skipped) for s in chosen}
    pools = _without_copies(pools, skipped)
    taken = sample(pools, limit=int(selection.limit_mb * 1e6))
    written = write_documents(out, sorted((d for pool in taken.values() for d in pool), key=lambda d: d.id))
    used = [_manifest_entry(s, packages, pools[s.name], taken[s.name], skipped) for s in chosen]
    total = {key: sum(entry[key] for entry in used) for key in ("documents", "bytes")}
    fields = {"kind": kind, "selection": selection.decisions, "sources": used, "skipped": skipped, "parts": written}
    write_manifest(out, fields | total)


def read(source: Source, *, packages: Path, part_bytes: int, skipped: list[Skipped]) -> list[Document]:
    """Return a source's documents; those without a text or not UTF-8 are added to ``skipped`` with the reason."""
    documents: list[Document] = []
    bad: list[Skipped] = []
    with tempfile.TemporaryDirectory() as folder:
        for package in source.packages:
            entry = recorded(package, packages)
            verify(packages, only=(entry.file,))
            unpack(packages / entry.file, Path(folder), reads=source.reads)
        for text in _texts(source, Path(folder)):
            found = _document_parts(source, text, part_bytes)
            documents.extend(found) if isinstance(found, list) else bad.append(found)
    if not documents:
        reasons = "; ".join(f"{b['origin']}: {b['reason']}" for b in bad[:3]) or "it yielded nothing"
        raise DataError(
            f"source {source.name}: no document out of {len(bad)} ({reasons}); check its `reads` and reader"
        )
    skipped.extend(bad)
    return documents


def _texts(source: Source, folder: Path) -> Iterator[Text]:
    try:
        yield from source.documents(folder)
    except Exception as error:
        raise SourceError(
            f"source {source.name}: its reader failed ({type(error).__name__}: {error}); "
            f"perhaps the package's layout changed: correct llm360/data/sources/{source.name.replace('-', '_')}.py"
        ) from error


def _document_parts(source: Source, text: Text, part_bytes: int) -> list[Document] | Skipped:
    origin, content = text
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8")
        except UnicodeDecodeError as error:
            return {"origin": f"{source.name}/{origin}", "reason": f"not UTF-8 at byte {error.start}"}
    if not content.strip():
        return {"origin": f"{source.name}/{origin}", "reason": "no text"}
    pieces = [p for p in parts(content, part_bytes) if p.strip()]
    places = [origin] if len(pieces) == 1 else [f"{origin}#{i:04}" for i in range(1, len(pieces) + 1)]
    return [
        Document(
            id=f"{source.name}/{place}",
            kind=source.kind,
            source=source.name,
            origin=place,
            licence=source.licence,
            text=piece,
        )
        for place, piece in zip(places, pieces, strict=True)
    ]


def parts(text: str, part_bytes: int) -> list[str]:
    """Cut ``text`` into parts of at most ``part_bytes`` (4 or more) bytes of UTF-8 that join to it again.

    It is cut between paragraphs; where one is too long, between lines; where one is too long, anywhere.
    """
    joined: list[str] = []
    size = part_bytes + 1
    for piece in _pieces(text, part_bytes, (r"(?<=\n\n)(?!\n)", r"(?<=\n)")):
        size += _size(piece)
        if size > part_bytes:
            joined.append(piece)
            size = _size(piece)
        else:
            joined[-1] += piece
    return joined


def _pieces(text: str, limit: int, separators: tuple[str, ...]) -> Iterator[str]:
    if _size(text) <= limit:
        yield text
    elif separators:
        for piece in re.split(separators[0], text):
            yield from _pieces(piece, limit, separators[1:])
    else:
        step = max(1, limit // 4)  # a character has at most four bytes
        yield from (text[i : i + step] for i in range(0, len(text), step))


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def _without_copies(pools: Mapping[str, list[Document]], skipped: list[Skipped]) -> dict[str, list[Document]]:
    first: dict[str, str] = {}
    kept: dict[str, list[Document]] = {name: [] for name in pools}
    for document in (d for pool in pools.values() for d in pool):
        same = first.setdefault(sha256_bytes(document.text.encode()), document.id)
        if same == document.id:
            kept[document.source].append(document)
        else:
            skipped.append({"origin": document.id, "reason": f"same text as {same}"})
    return kept


def sample(pools: Mapping[str, list[Document]], *, limit: int) -> dict[str, list[Document]]:
    """Take whole documents up to ``limit`` bytes, always from the pool that gave the fewest bytes so far.

    Within a pool they come in the order of their id's hash: any limit gives a fair sample of the whole source.
    """
    queues = {name: iter(sorted(pool, key=lambda d: sha256_bytes(d.id.encode()))) for name, pool in pools.items()}
    taken: dict[str, list[Document]] = {name: [] for name in pools}
    sizes = dict.fromkeys(pools, 0)
    while queues:
        name = min(queues, key=lambda n: (sizes[n], n))
        document = next(queues[name], None)
        if document is None:
            del queues[name]
        elif sum(sizes.values()) + _size(document.text) > limit:
            break
        else:
            taken[name].append(document)
            sizes[name] += _size(document.text)
    if not any(sizes.values()):
        raise DataError(f"{', '.join(pools)}: no document fits into {limit} bytes; raise limit_mb or lower part_kb")
    return taken


def _manifest_entry(
    source: Source, packages: Path, pool: list[Document], taken: list[Document], skipped: list[Skipped]
) -> dict[str, Any]:
    size, whole = _bytes(taken), _bytes(pool)
    return {
        "name": source.name,
        "licence": source.licence,
        "packages": [dataclasses.asdict(recorded(p, packages)) for p in source.packages] or [_interpreter()],
        "documents": len(taken),
        "bytes": size,
        "skipped": sum(s["origin"].startswith(f"{source.name}/") for s in skipped),
        "over_limit": {"documents": len(pool) - len(taken), "bytes": whole - size},
    }


def _bytes(documents: Iterable[Document]) -> int:
    return sum(_size(d.text) for d in documents)


def _interpreter() -> dict[str, Any]:
    return {
        "name": "python-standard-library",
        "version": platform.python_version(),
        "origin": "the interpreter",
        "file": None,
        "sha256": None,
        "licence": None,
    }
