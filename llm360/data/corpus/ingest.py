"""From a corpus to the documents of one kind: unit by unit, in parallel, every record written or counted and named.

<work>/<number>/documents/part_*.parquet   the documents of a unit
<work>/<number>.json                       its counts and the hashes of its inputs, written last: present means done
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llm360.data.corpus.declaration import Corpus, Unit, unit_records
from llm360.data.corpus.readers import LONG, Record, Unreadable
from llm360.data.documents import Document, write_parts
from llm360.errors import DataError, IntegrityError
from llm360.files import read_json, sha256_file, write_json
from llm360.processes import fan_out
from llm360.progress import track

NAMED = 20  # skipped records that are named per reason; all are counted
JUDGED = 100_000  # records that must have been read before a run is stopped early for its bad ones
Done = dict[str, Any]  # a unit's record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One unit to read into ``work``; share is the most text to take of it, in bytes."""

    kind: str
    corpus: Corpus
    unit: Unit
    work: Path
    share: float | None

    @property
    def record(self) -> Path:
        """The file that says that this unit is done."""
        return self.work / f"{self.unit.number:06d}.json"


@dataclasses.dataclass
class _Tally:
    records: int = 0
    not_selected: int = 0
    whole: bool = True
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    skipped: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def skip(self, origin: str, found: Unreadable) -> None:
        self.reasons[found.reason] = self.reasons.get(found.reason, 0) + 1
        if self.reasons[found.reason] <= NAMED:
            self.skipped.append({"origin": origin, "reason": f"{found.reason}: {found.detail}"})


class _Judge:
    """Counts unreadable records over the units; a record that is merely too long is not one."""

    def __init__(self, kind: str, max_bad: float) -> None:
        self.kind, self.max_bad = kind, max_bad
        self.records = self.bad = 0
        self.first: list[str] = []

    def add(self, done: Done) -> None:
        """Add a unit; raises DataError when more than max_bad of JUDGED records, or of all if more, are bad."""
        self.records += done["records"]
        self.bad += sum(count for reason, count in done["reasons"].items() if reason != LONG)
        named = [f"{e['origin']}: {e['reason']}" for e in done["skipped"] if not e["reason"].startswith(LONG)]
        self.first = [*self.first, *named][:3]
        self.judge(least=JUDGED)

    def judge(self, *, least: int = 0) -> None:
        """Raise DataError, with the arithmetic, when too many records are bad."""
        if self.bad <= self.max_bad * max(self.records, least):
            return
        raise DataError(
            f"sources.{self.kind}: {self.bad:,} of {self.records:,} records cannot be read "
            f"({self.bad / self.records:.3%}), max_bad {self.max_bad} allows {int(self.max_bad * self.records):,}. "
            f"First: {'; '.join(self.first)}. Mend the files or raise max_bad: what was read so far is kept"
        )


def read_corpus(kind: str, corpus: Corpus, units: list[Unit], *, work: Path, workers: int) -> list[Done]:
    """Read every unit that is not done yet and return all their records in order.

    Raises IntegrityError when a file is not what it was when it was read, DataError when too many records are bad.
    """
    share = corpus.limit_mb * 1e6 / len(units) if corpus.limit_mb is not None else None
    tasks = [Task(kind=kind, corpus=corpus, unit=unit, work=work, share=share) for unit in units]
    done = {task.unit.number: _done(task) for task in tasks if task.record.is_file()}
    judge = _Judge(kind, corpus.max_bad)
    for record in done.values():
        judge.add(record)
    todo = [task for task in tasks if task.unit.number not in done]
    ended = fan_out(read_unit, todo, workers=workers)
    for task, record in track(ended, label=f"sources {kind}", total=len(tasks), done=len(done)):
        done[task.unit.number] = record
        judge.add(record)
    judge.judge()
    return [done[unit.number] for unit in units]


def read_unit(task: Task) -> Done:
    """Write the documents of one unit, then its record, and return the record."""
    folder = task.work / f"{task.unit.number:06d}"
    shutil.rmtree(folder, ignore_errors=True)
    inputs = [_input(task, path) for path in task.unit.paths]
    tally = _Tally()
    written = write_parts(folder, _documents(task, tally), file=task.unit.number)
    _require_unchanged(task, inputs)
    done = {"inputs": inputs, "parts": written, **dataclasses.asdict(tally)}
    done |= {key: sum(part[key] for part in written) for key in ("documents", "bytes")}
    write_json(task.record, done)
    return done


def _documents(task: Task, tally: _Tally) -> Iterator[Document]:
    taken = 0
    for path, records in unit_records(task.corpus, task.unit):
        for number, record in records:
            place = path if task.corpus.text is None else f"{path}:{number}"
            found = _document(task, place, record)
            if isinstance(found, Document):
                taken += len(found.text.encode())
                if task.share is not None and taken > task.share:
                    tally.whole = False
                    return
                yield found
            elif found is None:
                tally.not_selected += 1
            else:
                tally.skip(place, found)
            tally.records += 1


def _document(task: Task, place: str, record: Record) -> Document | Unreadable | None:
    corpus = task.corpus
    if isinstance(record, Unreadable):
        return record
    values = {name: _field(record, name) for name in (corpus.text or "text", *corpus.where, corpus.id) if name}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        return Unreadable(reason="a field is missing", detail=missing[0])
    if any(str(values[name]) != wanted for name, wanted in corpus.where.items()):
        return None
    text = values[corpus.text or "text"]
    if bad := _unfit(text, longest=corpus.max_document_mb * 1e6):
        return bad
    origin = place if corpus.id is None else f"{place}#{values[corpus.id]}".encode(errors="replace").decode()
    named = {"id": f"{task.kind}/{place}", "kind": task.kind, "source": task.kind, "origin": origin}
    return Document(**named, licence=corpus.licence, text=text)


def _unfit(text: Any, *, longest: float) -> Unreadable | None:
    if not isinstance(text, str):
        return Unreadable(reason="the text is not a string", detail=type(text).__name__)
    if not text.strip():
        return Unreadable(reason="no text", detail="empty or white space")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:  # JSON may hold half of a surrogate pair
        return Unreadable(reason="not Unicode", detail=f"a lone surrogate at character {error.start}")
    return Unreadable(reason=LONG, detail=f"{size} bytes of text") if size > longest else None


def _field(record: Mapping[str, Any], name: str) -> Any:
    value: Any = record
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _input(task: Task, path: str) -> dict[str, Any]:
    """Return what names an input: of a file size, hash and time (in work alone), of a shard the dataset's commit."""
    if task.corpus.hub is not None:
        return {"path": path, "dataset": task.corpus.hub.dataset, "revision": task.corpus.hub.revision}
    assert task.corpus.files is not None
    file = Path(task.corpus.files.root, path)
    found = _stat(file)
    return {"path": path, **found, "sha256": sha256_file(file)}


def _stat(file: Path) -> dict[str, int]:
    try:
        found = file.stat()
    except FileNotFoundError as error:
        raise IntegrityError(f"{file}: gone since this build began; bring it back and run again") from error
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def _require_unchanged(task: Task, inputs: Iterable[Mapping[str, Any]]) -> None:
    for entry in inputs if task.corpus.files is not None else ():
        file = Path(task.corpus.files.root, entry["path"])  # type: ignore[union-attr]
        if _stat(file) == {key: entry[key] for key in ("bytes", "mtime_ns")}:
            continue
        if (found := sha256_file(file)) != entry["sha256"]:
            raise IntegrityError(
                f"{file}: sha256 {found}, expected {entry['sha256']}, as it was when this build read it; bring that "
                f"file back, or delete {task.work} to read the whole corpus anew"
            )


def _done(task: Task) -> Done:
    done: Done = read_json(task.record)
    _require_unchanged(task, done["inputs"])
    return done
