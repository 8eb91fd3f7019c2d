from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from llm360.environment import environment, use_threads

KEYS = {
    "torch", "transformers", "safetensors", "tokenizers", "libc", "threads", "cpu", "cpu_capability",
    "cpu_features", "device", "driver", "cuda", "cudnn", "attention", "optimizer", "deterministic",
    "matmul_precision", "tf32", "dtype", "variables",
}  # fmt: skip
ROOT = Path(__file__).parents[2]
PRINT = (
    "import json; from llm360.environment import *; use_threads(2); print(json.dumps(environment(), sort_keys=True))"
)


CHANGED = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.fixture(scope="module")
def processes():
    """The environment of two new processes, in the second with other kernels; both start at once, to save time."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("MKL_", "ONEDNN_", "CUBLAS_", "ATEN_"))}
    started = [
        subprocess.Popen([sys.executable, "-c", PRINT], cwd=ROOT, env=known | more, stdout=subprocess.PIPE)
        for more in ({}, CHANGED)
    ]
    return [json.loads(process.communicate()[0]) for process in started]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU as torch describes one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)


def test_the_keys_are_always_the_same_and_it_is_plain_json(gpu):
    on_gpu = environment()
    assert on_gpu.keys() == KEYS
    assert json.loads(json.dumps(on_gpu, allow_nan=False)) == on_gpu
    assert (on_gpu["device"], on_gpu["cuda"], on_gpu["cudnn"]) == ("NVIDIA H200", "13.0", 91002)


def test_two_processes_differ_in_what_was_changed_and_in_nothing_else(processes):
    here, there = processes
    assert here.keys() == there.keys() == KEYS
    assert {k for k in KEYS if here[k] != there[k]} == {"cpu_capability", "variables"}
    assert (there["cpu_capability"], there["variables"]) == ("DEFAULT", {"ONEDNN_MAX_CPU_ISA": "AVX2"})


def test_the_settings_of_every_process_are_deterministic_and_full_fp32(processes):
    here = processes[0]
    assert (here["threads"], here["deterministic"], here["device"]) == (2, True, "cpu")
    assert (here["matmul_precision"], here["tf32"], here["dtype"]) == ("highest", False, "float32")
    assert (here["driver"], here["cuda"], here["cudnn"]) == (None, None, None)
    assert here["variables"] == {}  # what cuBLAS reads plays no part on the CPU


def test_cublas_is_told_before_cuda_starts_and_it_is_recorded_on_a_gpu(gpu, monkeypatch):
    for name in ("CUBLAS_WORKSPACE_CONFIG", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)
    deterministic = torch.are_deterministic_algorithms_enabled()
    use_threads(torch.get_num_threads())
    torch.use_deterministic_algorithms(deterministic)
    assert environment()["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_another_optimizer_is_recorded():
    assert environment()["optimizer"] == "adamw, fused"
    assert environment(optimizer="adamw")["optimizer"] == "adamw"
