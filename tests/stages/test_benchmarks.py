from __future__ import annotations

from pathlib import Path

from llm360.files import verify
from stages import benchmarks


def test_the_stage_leaves_the_folder_that_analyses_depend_on_where_no_task_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("evaluation: {benchmarks: {source: local}, tasks: {}}\n")
    assert benchmarks.main([]) == 0
    assert verify(Path("artifacts/benchmarks"))["benchmark"] == "synthetic"
    assert Path("artifacts/evaluation").is_dir()
