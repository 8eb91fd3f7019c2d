from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from analyses.common.run import load, names
from llm360.config import from_mapping
from llm360.files import verify, write_json
from stages import analyze
from stages.compose import compose

RUNTIME = {"threads": 1, "workers": 1, "ranks": 1, "replicas": 1, "trackers": []}
SCALES = ["smoke", "mini", "study", "paper"]  # a suite of one's own may do with fewer analyses


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A workspace with a log of two chunks and no model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM360_HOME", raising=False)
    Path("dvc.yaml").write_text("stages: {}\n")
    Path("params.yaml").write_text(yaml.safe_dump({"runtime": RUNTIME, "analyses": {"training": {"suites": ["toy"]}}}))
    row = {"ckpt": 0, "phase": "pretrain", "path": "checkpoints/toy/ckpt_000"}
    phases = [{"name": "pretrain", "first": 0, "last": 1}]
    index = {
        "format": "llm360-index/2",
        "suite": "toy",
        "base": None,
        "branch": None,
        "phases": phases,
        "checkpoints": [row],
    }
    write_json(Path("artifacts/index/toy.json"), index)
    for chunk in range(2):
        step = {"suite": "toy", "phase": "pretrain", "chunk": chunk, "step": chunk + 1, "tokens_seen": 64 * (chunk + 1)}
        step |= {"phase_step": chunk + 1, "loss": 3.0 - chunk, "grad_norm": 1.0, "learning_rate": 1e-3}
        path = Path(f"artifacts/metrics/toy/chunk_{chunk:03d}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(step) + "\n")
    return tmp_path


def test_the_stage_writes_the_analysis(project):
    assert analyze.main(["--analysis", "training"]) == 0
    out = Path("artifacts/analyses/training")
    assert verify(out)["analysis"] == "training"
    assert json.loads((out / "summary.json").read_text())["toy/loss/last"] == 2.0


def test_bad_input_is_one_line_and_leaves_what_was_there(project, capsys):
    analyze.main(["--analysis", "training"])
    before = Path("artifacts/analyses/training/manifest.json").read_bytes()
    Path("params.yaml").write_text("runtime: {threads: 1, workers: 1}\nanalyses: {training: {suits: [toy]}}\n")
    with pytest.raises(SystemExit):
        analyze.main(["--analysis", "training"])
    assert "unknown key 'suits'; did you mean 'suites'" in capsys.readouterr().err
    assert Path("artifacts/analyses/training/manifest.json").read_bytes() == before


@pytest.mark.parametrize("scale", SCALES)
def test_every_analysis_file_has_its_section_at_every_scale_and_nothing_else(scale):
    sections = compose([f"scale={scale}"])["analyses"]
    assert sorted(sections) == names()
    for name, section in sections.items():
        from_mapping(load(name).Params, section, where=f"{scale}: analyses.{name}")
