from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GUARD = Path(__file__).resolve().parents[2] / "stages/cpu_torch.py"


def guard(tmp_path, *, cuda, allowed):
    """Run the guard with a site-packages of our own that holds only torch's version file."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '2.13.0'\ncuda = {cuda!r}\n")
    program = "import sys, sysconfig, runpy\nsysconfig.get_path = lambda _: sys.argv[1]\nrunpy.run_path(sys.argv[2])"
    command = [sys.executable, "-c", program, str(tmp_path), str(GUARD)]
    env = {k: v for k, v in os.environ.items() if k != "LLM360_CUDA"} | ({"LLM360_CUDA": "1"} if allowed else {})
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("cuda", "allowed"), [(None, False), (None, True), ("13.0", True)])
def test_what_was_meant_passes(tmp_path, cuda, allowed):
    assert guard(tmp_path, cuda=cuda, allowed=allowed).returncode == 0


def test_a_cuda_build_by_accident_is_refused_with_the_cure(tmp_path):
    done = guard(tmp_path, cuda="13.0", allowed=False)
    assert done.returncode == 1
    assert "a CUDA build of several GB; expected a CPU build" in done.stderr
    assert "LLM360_CUDA=1" in done.stderr
