from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stages.repro import main, mend

LOCK = """schema: '2.0'
stages:
  packages:
    cmd: python -m stages.packages
    deps:
    - path: stages/packages.py
      hash: md5
      md5: 0123456789abcdef0123456789abcdef
      size: 10
    outs:
    - path: artifacts/packages
      hash: md5
      md5: 0123456789abcdef0123456789abcdef.dir
      size: 10
      nfiles: 1
  sources@arxiv:
    cmd: python -m stages.sources --kind arxiv
    params:
      params.yaml:
        sources.arxiv:
          from:
          - r_survival
    outs:
    - path: artifacts/sources/arxiv
      hash: md5
      md5: 0123456789abcdef0123456789abcdef.dir
      size: 10
      nfiles: 2
"""


@pytest.mark.parametrize(
    "damage",
    [
        ("    outs:\n    - path: artifacts/packages\n", "<<<<<<< HEAD\n    outs:\n    - path: artifacts/packages\n"),
        ("    cmd: python -m stages.packages\n", "    cmd: [\n"),
    ],
)
def test_other_damage_is_refused_with_the_cure_and_changes_nothing(damage, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = LOCK.replace(*damage)
    Path("dvc.lock").write_text(text)
    with pytest.raises(SystemExit):
        main([])
    assert "git checkout dvc.lock" in capsys.readouterr().err
    assert Path("dvc.lock").read_text() == text


def test_a_whole_lock_is_left_alone():
    assert mend(LOCK) is None


@given(cut=st.integers(0, len(LOCK) - 1))
def test_a_lock_cut_anywhere_is_mended_to_entries_of_the_original(cut):
    whole = yaml.safe_load(LOCK)["stages"]
    kept = mend(LOCK[:cut])
    text = LOCK[:cut] if kept is None else kept
    stages = yaml.safe_load(text)["stages"] if text else {}
    for name, entry in stages.items():
        assert entry["cmd"] == whole[name]["cmd"]
        # an entry cut inside its outs has fewer of them, which DVC sees as a change and runs the stage
        assert all(out in whole[name]["outs"] or out.keys() < whole[name]["outs"][0].keys() for out in entry["outs"])
