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
        "sources": [{"name": "novels", "licence": "MIT", "documents": 3, "bytes": 2_500_000, "packages": [PACKAGE]}],
        "skipped": [{"origin": "novels/a.txt", "reason": "no text"}, {"origin": "other/b", "reason": "no text"}],
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
    card = data_card(CHUNKS, {"book": {"sources": [source], "skipped": []}})
    assert "| python-standard-library | 3.11.7 | part of the interpreter | with the interpreter |" in card
    assert "The interpreter's licence is in its own installation" in card
    assert "artifacts/packages" not in card


def test_the_front_matter_is_yaml():
    front = data_card(CHUNKS, SOURCES).split("---")[1]
    assert yaml.safe_load(front) == {"language": ["en", "code"], "license": "other", "license_name": "MIT"}
