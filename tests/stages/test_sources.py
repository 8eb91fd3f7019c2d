from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from llm360.config import from_mapping
from llm360.data.corpus import ingest
from llm360.data.corpus.declaration import Corpus, declared
from llm360.data.documents import read_documents
from llm360.files import sha256_file, verify
from stages import packages, sources
from stages.compose import CONF, compose

PARAMS = """
sources:
  book: {{names: [{name}], limit_mb: 0.1, part_kb: 16}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages._stage.end_without_parent", lambda: None)


def params(name: str) -> None:
    Path("params.yaml").write_text(PARAMS.format(name=name))


def test_both_stages_run_without_a_network_and_repeat_their_bytes():
    params("python-topics")
    hashes = []
    for _ in range(2):
        assert packages.main([]) == 0
        assert sources.main(["--kind", "book"]) == 0
        hashes.append({p: sha256_file(p) for p in Path("artifacts").rglob("*") if p.is_file() and p.suffix != ".lock"})
    assert hashes[0] == hashes[1]
    assert verify(Path("artifacts/sources/book"))["kind"] == "book"


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [("python-topic", "book", "did you mean 'python-topics'"), ("python-topics", "bok", "did you mean 'book'")],
)
def test_a_mistake_is_one_line_and_leaves_what_exists(capsys, change, kind, message):
    params("python-topics")
    packages.main([])
    sources.main(["--kind", "book"])
    before = verify(Path("artifacts/sources/book"))
    params(change)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        sources.main(["--kind", kind])
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert verify(Path("artifacts/sources/book")) == before


RUNTIME = {"threads": 1, "workers": 1, "ranks": 1, "replicas": 1, "trackers": []}
CORPUS = {
    "licence": "MIT", "text": "text", "id": None, "where": {}, "max_bad": 0.5, "max_document_mb": 1.0,
    "limit_mb": None, "files": {"format": "jsonl", "root": "mine", "patterns": ["*.jsonl"]},
}  # fmt: skip


def corpus(**changed) -> None:
    settings = {"runtime": RUNTIME, "sources": {"my-texts": CORPUS | changed}}
    Path("params.yaml").write_text(yaml.safe_dump(settings))


def lines(name: str, *texts: str) -> None:
    Path("mine").mkdir(exist_ok=True)
    Path("mine", name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_a_corpus_is_built_and_its_work_folder_goes(capsys):
    corpus()
    lines("a.jsonl", "one", "two", " ")
    assert sources.main(["--kind", "my-texts"]) == 0
    out = Path("artifacts/sources/my-texts")
    assert verify(out)["kind"] == "my-texts"
    assert read_documents(out)["text"].to_list() == ["one", "two"]
    assert "2 documents, 0.00 MB, 1 skipped" in capsys.readouterr().err
    assert not Path("artifacts/.work/sources/my-texts").exists()


def test_tasks_name_whole_paths_for_workers_with_a_working_directory_of_their_own(monkeypatch, tmp_path):
    """Seen: on a cluster that was started elsewhere the workers wrote into another folder."""
    corpus()
    lines("a.jsonl", "one")
    here, read = Path.cwd(), ingest.read_unit

    def elsewhere(task):
        monkeypatch.chdir(tmp_path.parent)
        try:
            return read(task)
        finally:
            monkeypatch.chdir(here)

    monkeypatch.setattr(ingest, "read_unit", elsewhere)
    assert sources.main(["--kind", "my-texts"]) == 0
    assert read_documents(Path("artifacts/sources/my-texts"))["text"].to_list() == ["one"]


def test_work_is_kept_for_a_raised_threshold(capsys, monkeypatch):
    corpus(max_bad=0.1)
    lines("a.jsonl", "one", "two")
    lines("b.jsonl", " ")
    with pytest.raises(SystemExit):
        sources.main(["--kind", "my-texts"])
    assert "1 of 3 records cannot be read (33.333%), max_bad 0.1 allows 0" in capsys.readouterr().err
    monkeypatch.setattr("llm360.data.corpus.ingest.read_unit", lambda task: pytest.fail(f"{task.unit} is read again"))
    corpus(max_bad=0.5)
    assert sources.main(["--kind", "my-texts"]) == 0
    assert read_documents(Path("artifacts/sources/my-texts"))["text"].to_list() == ["one", "two"]


def test_work_of_another_recipe_is_not_used(capsys):
    corpus(max_bad=0.1)
    lines("a.jsonl", "one", " ")
    for changed, said in (
        ({"max_bad": 0.1}, "1 of 2 records"),
        ({"text": "txet"}, "made by another recipe (corpus.text: "),
    ):
        corpus(**changed)
        with pytest.raises(SystemExit):
            sources.main(["--kind", "my-texts"])
        assert said in capsys.readouterr().err
    lines("b.jsonl", "two")
    corpus()
    assert sources.main(["--kind", "my-texts"]) == 0
    assert "made by another recipe (corpus.text: " in capsys.readouterr().err
    assert read_documents(Path("artifacts/sources/my-texts"))["text"].to_list() == ["one", "two"]


def test_a_failure_leaves_what_exists():
    corpus()
    lines("a.jsonl", "one")
    sources.main(["--kind", "my-texts"])
    before = verify(Path("artifacts/sources/my-texts"))
    lines("a.jsonl", " ", " ")
    with pytest.raises(SystemExit):
        sources.main(["--kind", "my-texts"])
    assert verify(Path("artifacts/sources/my-texts")) == before


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "sources").glob("*.yaml")))
def test_every_set_of_sources_composes_and_is_read(name):
    for kind, section in compose([f"sources={name}"])["sources"].items():
        declared(kind, section, where=f"{name}: {kind}")


def test_the_published_corpora_hold_the_papers_sizes_and_name_what_is_missing(capsys):
    """Amber, Table 2: 1,259.11 billion tokens; SlimPajama: 690 billion with CrystalCoder's tokenizer."""
    published = compose(["sources=published"])["sources"]
    read = {kind: from_mapping(Corpus, section, where=kind) for kind, section in published.items()}
    amber = ("arxiv", "book", "c4", "refinedweb", "starcoderdata", "stackexchange", "wikipedia")
    assert sum(read[kind].tokens for kind in amber) == 1_259_110_000_000
    slimpajama = [corpus.tokens for kind, corpus in read.items() if kind.startswith("slimpajama-")]
    assert len(slimpajama) == 7
    assert sum(slimpajama) == pytest.approx(690e9, abs=5e7)
    Path("params.yaml").write_text(yaml.safe_dump({"runtime": RUNTIME, "sources": published}))
    for kind, corpus in read.items():
        with pytest.raises(SystemExit):
            sources.main(["--kind", kind])
        said = capsys.readouterr().err
        assert f"sources.{kind}: " in said
        assert ("give the commit of" if corpus.hub else "bring the corpus there") in said
