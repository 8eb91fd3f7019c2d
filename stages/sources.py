"""Collect the documents of one kind from packages or a corpus: ``python -m stages.sources --kind arxiv``."""

from __future__ import annotations

import argparse
from pathlib import Path

from llm360.code import code_sha256
from llm360.data.corpus.declaration import Corpus, corpus_units, declared, recipe
from llm360.data.corpus.gather import write_corpus
from llm360.data.corpus.ingest import read_corpus
from llm360.data.packaged.collect import Selection, collect
from llm360.files import new_folder, read_manifest
from llm360.progress import say
from stages._stage import ARTIFACTS, PARAMS, mapping, persistent, remove_work, stage, workers

CODE = (
    "llm360/data/corpus/declaration.py",
    "llm360/data/corpus/readers.py",
    "llm360/data/documents.py",
    "llm360/data/corpus/ingest.py",
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m stages.sources", description=__doc__)
    parser.add_argument("--kind", required=True, help="a key of the section sources")
    kind = parser.parse_args(argv).kind
    out, where = ARTIFACTS / "sources" / kind, f"sources.{kind}"
    with stage(out):
        chosen = declared(kind, mapping(where), where=f"{PARAMS}: {where}")
        _from_packages(kind, chosen, out) if isinstance(chosen, Selection) else _from_corpus(kind, chosen, out)
        made = read_manifest(out)
        skipped = sum(source["skipped"] for source in made["sources"])
        say(f"{out}: {made['documents']} documents, {made['bytes'] / 1e6:.2f} MB, {skipped} skipped")
    return 0


def _from_packages(kind: str, selection: Selection, out: Path) -> None:
    with new_folder(out) as folder:
        collect(kind, selection, packages=ARTIFACTS / "packages", out=folder)


def _from_corpus(kind: str, corpus: Corpus, out: Path) -> None:
    work = (ARTIFACTS / ".work" / "sources" / kind).resolve()  # not in what DVC removes before a stage: a kill keeps it
    corpus = corpus.resolved()  # a worker of a cluster has a working directory of its own
    units = corpus_units(kind, corpus)
    persistent(work, {**recipe(kind, corpus, units), "code": code_sha256(*CODE)})
    done = read_corpus(kind, corpus, units, work=work, workers=workers())
    with new_folder(out) as folder:
        write_corpus(kind, corpus, done, work=work, out=folder)
    remove_work(work)


if __name__ == "__main__":
    raise SystemExit(main())
