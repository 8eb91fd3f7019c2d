"""What the units of a corpus left, gathered as the documents of one kind, with the hashes of all inputs."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llm360.data.corpus.declaration import Corpus
from llm360.data.corpus.ingest import NAMED, Done
from llm360.data.documents import part_path
from llm360.errors import DataError
from llm360.files import link_file, write_bytes, write_manifest

INPUTS = "inputs.jsonl"


def write_corpus(kind: str, corpus: Corpus, done: list[Done], *, work: Path, out: Path) -> None:
    """Gather the documents that the units left in ``work`` in the empty folder ``out``, and write its manifest.

    They are linked, not moved: a kill leaves them in ``work``. Raises DataError when there is no document.
    """
    reasons = _total(done)
    total = {key: sum(unit[key] for unit in done) for key in ("records", "documents", "bytes", "not_selected")}
    if not total["documents"]:
        raise DataError(
            f"sources.{kind}: no document in {total['records']:,} records of {len(done)} files or shards "
            f"({total['not_selected']:,} not selected, {dict(reasons) or 'none unreadable'}); "
            f"check its text, where and limit_mb"
        )
    written = _gather(done, work=work, out=out)
    write_bytes(out / INPUTS, "".join(_input_line(number, unit) for number, unit in enumerate(done)).encode())
    source = {"name": kind, "licence": corpus.licence, "packages": [], **total}
    source |= {"skipped": sum(reasons.values()), "reasons": dict(reasons), "whole": all(u["whole"] for u in done)}
    fields: dict[str, Any] = {key: total[key] for key in ("documents", "bytes")}
    fields |= {"kind": kind, "corpus": corpus.decisions, "sources": [source], "skipped": _named(done), "parts": written}
    fields["inputs"] = len(done)
    write_manifest(out, fields)


def _total(done: Iterable[Done]) -> collections.Counter[str]:
    reasons: collections.Counter[str] = collections.Counter()
    for unit in done:
        reasons.update(unit["reasons"])
    return reasons


def _named(done: Iterable[Done]) -> list[dict[str, str]]:
    """Return the first NAMED skipped records of each reason."""
    seen: collections.Counter[str] = collections.Counter()
    named = []
    for entry in (entry for unit in done for entry in unit["skipped"]):
        reason = entry["reason"].partition(":")[0]
        seen[reason] += 1
        if seen[reason] <= NAMED:
            named.append(entry)
    return named


def _gather(done: Iterable[Done], *, work: Path, out: Path) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    for number, unit in enumerate(done):
        for part in unit["parts"]:
            path = part_path(len(written))
            link_file(work / f"{number:06d}" / part["path"], out / path)
            written.append({**part, "path": path})
    return written


def _input_line(number: int, unit: Done) -> str:
    inputs = [{k: v for k, v in entry.items() if k != "mtime_ns"} for entry in unit["inputs"]]
    counts = {k: v for k, v in unit.items() if k not in ("inputs", "parts", "skipped")}
    return json.dumps({"file": number, "inputs": inputs, **counts}, sort_keys=True, ensure_ascii=False) + "\n"
