from __future__ import annotations

import yaml

from llm360.data.card import data_card

CHUNKS = {
    "suite": "tiny",
    "phase": "p",
    "sequence_length": 32,
    "chunks": 2,
    "mixture": {"book": {"weight": 2.0, "part": "all"}},
    "kinds": {"book": {"rows": 10, "rows_available": 5}},
}
PACKAGE = {"name": "r-cran-x", "version": "1.0-1", "sha256": "ab" * 32, "licence": "licences/x.txt"}
INTERPRETER = {"name": "python-standard-library", "version": "3.11.7", "sha256": None, "licence": None}
SOURCES = {
    "book": {
        "sources": [
            {
                "name": "novels",
                "licence": "MIT",
                "documents": 3,
                "bytes": 2_500_000,
                "skipped": 1,
                "packages": [PACKAGE],
            }
        ]
    }
}


def test_the_card_names_each_text_its_licence_and_its_package():
    card = data_card(CHUNKS, SOURCES)
    assert "| book | novels | 3 | 2.50 | 1 | MIT |" in card
    assert f"| r-cran-x | 1.0-1 | {'ab' * 32} | `artifacts/packages/licences/x.txt` |" in card
    assert "interpreter" not in card
    assert "| book | 2.0 | 10 | 5 | 2.00 | all |" in card
    assert "320 tokens to predict" in card


def test_a_source_without_a_licence_text_says_where_its_own_is():
    source = SOURCES["book"]["sources"][0] | {"packages": [INTERPRETER]}
    card = data_card(CHUNKS, {"book": {"sources": [source]}})
    assert "| python-standard-library | 3.11.7 | part of the interpreter | with the interpreter |" in card
    assert "The interpreter's licence is in its own installation" in card
    assert "artifacts/packages" not in card


def test_the_front_matter_is_yaml():
    front = data_card(CHUNKS, SOURCES).split("---")[1]
    assert yaml.safe_load(front) == {"language": ["en", "code"], "license": "other", "license_name": "MIT"}


CORPUS = {
    "files": None,
    "hub": {"dataset": "o/n", "config": None, "data_dir": "py", "split": "train", "revision": "ab" * 20},
    "where": {"meta.set": "Code"},
}
TEXTS = {"name": "code", "licence": "MIT", "documents": 3, "bytes": 5_000_000, "skipped": 7, "not_selected": 4}


def test_a_corpus_is_named_with_its_commit_and_what_was_selected():
    card = data_card(CHUNKS, {"code": {"sources": [TEXTS | {"packages": []}], "corpus": CORPUS}})
    assert "| code | code | 3 | 5.00 | 7 | MIT |" in card
    place = f"o/n at `{'ab' * 20}` (py, train)"
    assert f"| code | {place} | meta.set = Code | 4 | `artifacts/sources/code/inputs.jsonl` |" in card
    assert "## Packages" not in card


def test_files_of_ones_own_are_named_by_their_patterns():
    corpus = CORPUS | {"hub": None, "files": {"format": "text", "patterns": ["**/*.py"]}, "where": {}}
    card = data_card(CHUNKS, {"code": {"sources": [TEXTS | {"packages": []}], "corpus": corpus}})
    assert "| code | own files in text: `**/*.py` | all | 4 |" in card
