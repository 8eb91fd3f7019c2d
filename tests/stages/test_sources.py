from __future__ import annotations

from pathlib import Path

import pytest

from llm360.files import sha256_file, verify
from stages import packages, sources

PARAMS = """
sources:
  book: {{names: [{name}], limit_mb: 0.1, part_kb: 16}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages._stage._die_with_parent", lambda: None)


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
