from __future__ import annotations

from pathlib import Path

from llm360.files import verify
from stages import report


def test_the_stage_writes_one_page_even_where_nothing_was_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("analyses: {training: {suites: []}}\n")
    assert report.main([]) == 0
    first = Path("artifacts/report/index.html").read_bytes()
    assert b"No suite has been built here yet" in first
    assert b"dvc repro analyze@training" in first
    assert b"no section <code>analyses.data</code>" in first
    assert [e["path"] for e in verify(Path("artifacts/report"))["files"]] == ["index.html"]
    assert report.main([]) == 0
    assert Path("artifacts/report/index.html").read_bytes() == first
