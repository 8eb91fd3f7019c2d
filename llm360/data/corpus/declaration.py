"""A corpus of one's own as the text of a kind: how it is declared, and its inputs, the units of work and of resume."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from llm360.config import fingerprint, from_mapping, require_positive
from llm360.data.corpus.readers import Numbered, json_lines, parquet_rows, text_file
from llm360.data.packaged.collect import Selection
from llm360.errors import ConfigError, SourceError

KIND = re.compile(r"[a-z0-9][a-z0-9_-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")
TEXTS_A_UNIT = 1000  # text files are small: so many make one unit of work, in the order of their paths
NEVER_IN_DOCUMENTS = ("max_bad", "tokens")  # they change what is accepted or planned, not what is read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Files below root that match any of the patterns (as of Path.glob, ``**`` for any folder), in order of path.

    jsonl: a record a line. parquet: a record a row. text: a document a file, which is how a folder of code is read
    (``["**/*.py"]``). jsonl and text may be compressed (.gz, .zst). root never appears in what is written.
    """

    format: Literal["jsonl", "parquet", "text"]
    root: str
    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            path = PurePosixPath(pattern)
            if not pattern or path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    f"patterns: read {pattern!r}, expected a pattern below root, such as '**/*.jsonl.zst'"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hub:
    """A dataset of the Hugging Face Hub by name, streamed; one shard of it counts as one file.

    config and data_dir choose a part of it, null: its default. revision is a commit, since a branch moves.
    """

    dataset: str
    config: str | None
    data_dir: str | None
    split: str
    revision: str | None

    def __post_init__(self) -> None:
        if self.revision is not None and not COMMIT.fullmatch(self.revision):
            raise ConfigError(
                f"revision: read {self.revision!r}, expected a commit of 40 hex digits, since branches and tags move"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """The text of one kind: from files or from the Hub, of which exactly one is given.

    text and id are names of a record's fields, dotted where nested (``meta.url``). id is kept in a document's origin;
    null: none. where keeps the records whose fields have these values. text is null for files that are text.
    max_bad is the largest share of records that may be unreadable. A record above max_document_mb (10^6 bytes; of a
    line of JSON, else of text) is skipped. limit_mb is the most text to take, an equal share of each unit; null: all.
    tokens is the size that the planner reckons with.
    """

    licence: str
    text: str | None
    id: str | None
    where: dict[str, str]
    max_bad: float
    max_document_mb: float
    limit_mb: float | None
    tokens: int | None = None
    files: Files | None = None
    hub: Hub | None = None

    def __post_init__(self) -> None:
        require_positive(self, "max_document_mb", *(n for n in ("limit_mb", "tokens") if getattr(self, n) is not None))
        if not 0 <= self.max_bad < 1:
            raise ConfigError(f"max_bad: read {self.max_bad}, expected a share from 0 to below 1, such as 0.001")
        if (self.files is None) == (self.hub is None):
            raise ConfigError("files, hub: expected exactly one of them, where the corpus lies")
        whole = self.files is not None and self.files.format == "text"
        if whole and (self.text is not None or self.id is not None or self.where):
            raise ConfigError("text: files of format text have no fields; set text and id to null and where to {}")
        if not whole and self.text is None:
            raise ConfigError("text: read null, expected the name of the field that holds the text")

    @property
    def decisions(self) -> dict[str, Any]:
        """What decides the documents of given files, for their manifest: not where the files lie."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k not in NEVER_IN_DOCUMENTS}
        if self.files is not None:
            fields["files"].pop("root")  # the same files elsewhere are the same corpus
        return fields

    def resolved(self) -> Corpus:
        """Return this corpus with the whole path of its root."""
        if self.files is None:
            return self
        return dataclasses.replace(
            self, files=dataclasses.replace(self.files, root=str(Path(self.files.root).resolve()))
        )

    @property
    def columns(self) -> list[str]:
        """The top-level fields that are read of a record."""
        fields = [self.text, self.id, *self.where]
        return list(dict.fromkeys(f.partition(".")[0] for f in fields if f is not None))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """What one task reads: a file, a thousand files of text, or a shard of a dataset; paths are below root."""

    number: int
    paths: tuple[str, ...]
    shard: Any = None


def declared(kind: str, section: Mapping[str, Any], *, where: str) -> Selection | Corpus:
    """Return what a kind's section declares: packaged sources where it has ``names``, else a corpus.

    Raises ConfigError naming ``where`` for what cannot be read.
    """
    if not KIND.fullmatch(kind):
        raise ConfigError(f"{where}: kind {kind!r}, expected lower-case letters, digits, - and _, as in 'my-code_2'")
    if "names" in section:
        return from_mapping(Selection, section, where=where)
    return from_mapping(Corpus, section, where=where)


def recipe(kind: str, corpus: Corpus, units: list[Unit]) -> dict[str, Any]:
    """Return what decides the documents, but for the files' content, which each unit's record names by hash."""
    inputs = {"units": len(units), "paths": fingerprint([unit.paths for unit in units])}
    return {"kind": kind, "corpus": corpus.decisions, "inputs": inputs}


def corpus_units(kind: str, corpus: Corpus) -> list[Unit]:
    """Return the units of a corpus in order; raises SourceError when it is not there, saying what would bring it."""
    if corpus.hub is not None:
        return _shards(kind, corpus.hub)
    assert corpus.files is not None
    paths = _paths(kind, corpus.files)
    size = TEXTS_A_UNIT if corpus.files.format == "text" else 1
    groups = [tuple(paths[i : i + size]) for i in range(0, len(paths), size)]
    return [Unit(number=number, paths=group) for number, group in enumerate(groups)]


def _paths(kind: str, files: Files) -> list[str]:
    root = Path(files.root)
    if not root.is_dir():
        raise SourceError(
            f"sources.{kind}: no folder {root}; bring the corpus there or set files.root to where it lies"
        )
    found = {path for pattern in files.patterns for path in root.glob(pattern) if path.is_file()}
    paths = sorted(path.relative_to(root).as_posix() for path in found)
    if not paths:
        raise SourceError(
            f"sources.{kind}: no file below {root} matches {', '.join(files.patterns)}; mend the patterns"
        )
    for path in paths:
        if "\\udc" in ascii(path):  # how Python hands on the bytes of a name that is not UTF-8
            raise SourceError(f"sources.{kind}: the file name {path!a} is not UTF-8; rename it or narrow the patterns")
    return paths


def _shards(kind: str, hub: Hub) -> list[Unit]:
    if hub.revision is None:
        raise SourceError(
            f"sources.{kind}: hub.revision is null; give the commit of {hub.dataset} to read, 40 hex digits: "
            f"https://huggingface.co/datasets/{hub.dataset}/commits/main"
        )
    stream = _stream(kind, hub)
    total = int(stream.num_shards)
    shards = [stream.shard(num_shards=total, index=i) for i in range(total)]
    return [Unit(number=i, paths=(f"{hub.split}/{i:05d}",), shard=shard) for i, shard in enumerate(shards)]


def _stream(kind: str, hub: Hub) -> Any:
    import datasets

    options = {"data_dir": hub.data_dir, "split": hub.split, "revision": hub.revision}
    try:
        return datasets.load_dataset(hub.dataset, hub.config, streaming=True, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceError(
            f"sources.{kind}: {hub.dataset} at {hub.revision} cannot be opened ({type(error).__name__}: {reason}); "
            f"check its name, split and commit, the network, and `hf auth login` for a gated one"
        ) from error


def unit_records(corpus: Corpus, unit: Unit) -> Iterator[tuple[str, Numbered]]:
    """Yield (path, its records) for every input of a unit."""
    longest = int(corpus.max_document_mb * 1e6)
    if corpus.files is None:
        yield unit.paths[0], _shard_records(corpus, unit)
        return
    root = Path(corpus.files.root)
    for path in unit.paths:
        if corpus.files.format == "jsonl":
            yield path, json_lines(root / path, longest=longest)
        elif corpus.files.format == "parquet":
            yield path, parquet_rows(root / path, columns=corpus.columns)
        else:
            yield path, text_file(root / path, longest=longest)


def _shard_records(corpus: Corpus, unit: Unit) -> Numbered:
    assert corpus.hub is not None
    number = 0
    try:
        for record in unit.shard:
            number += 1
            yield number, record
    except Exception as error:  # not counted as a bad record: how many more are lost with it cannot be known
        reason = " ".join(str(error).split())[:300]
        raise SourceError(
            f"{corpus.hub.dataset}: shard {unit.paths[0]} breaks off after record {number} ({type(error).__name__}: "
            f"{reason}); finished shards are kept: run again if it was the network. If it breaks there again, "
            f"download the dataset's files and declare them as `files`, which skips single records"
        ) from error
