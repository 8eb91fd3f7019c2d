"""Differences of checkpoints: every altered bit is found, named and measured."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from llm360.config import value_differences
from llm360.errors import IntegrityError
from llm360.files import write_json, write_manifest
from llm360.replay import compare as module
from llm360.replay.compare import compare, compare_elements, compare_tensors

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "ckpt_000"
    root.mkdir()
    tensors = {"norm": torch.ones(3), "embed": torch.arange(6, dtype=torch.float32).view(2, 3)}
    save_file(tensors, root / "model.safetensors")
    write_json(root / "state.json", {"step": 4, "deferred": [], "torch_rng": "AA"})
    (root / "tokenizer.txt").write_text("a b")
    write_manifest(root, {"step": 4})
    return root


@pytest.fixture
def other(folder):
    return shutil.copytree(folder, folder.with_name("other"))


def change(folder, **tensors):
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    save_file(load_file(path) | tensors, path)


def test_equal_folders_have_no_difference(folder, other):
    assert compare(folder, other) == ()


def test_the_tensor_that_differs_is_named_with_count_size_and_distance(folder, other):
    changed = torch.arange(6, dtype=torch.float32).view(2, 3)
    changed[1, 2] = float(np.nextafter(np.float32(5), np.float32(6)))
    changed[0, 1] += 0.5
    change(other, embed=changed)
    (file,) = compare(folder, other)
    (tensor,) = file.tensors
    assert (file.path, tensor.name, tensor.elements, tensor.differing) == ("model.safetensors", "embed", 6, 2)
    assert tensor.max_abs == 0.5
    assert tensor.ulps == {"1": 1, f"{1 << 22}-{(1 << 23) - 1}": 1}
    assert tensor.max_ulps == 1 << 22  # a half above 1 is 2^22 floats away
    assert str(file) == "model.safetensors: embed: 2 of 6 elements, at most 0.5 (4194304 ulp)"


def test_the_worst_tensor_comes_first(folder, other):
    changed = torch.arange(6, dtype=torch.float32).view(2, 3)
    changed[1, 2] += 1
    change(other, norm=torch.full((3,), 1 + 2**-23), embed=changed)
    assert [t.name for t in compare(folder, other)[0].tensors] == ["embed", "norm"]


def test_values_of_json_are_named_and_other_files_by_path(folder, other):
    write_json(other / "state.json", {"step": 5, "deferred": [], "torch_rng": "AA"})
    (other / "tokenizer.txt").write_text("a c")
    assert [str(d) for d in compare(folder, other)] == ["state.json: step: 4 -> 5", "tokenizer.txt: other bytes"]


def test_a_file_too_few_and_too_many(folder, other):
    (other / "tokenizer.txt").rename(other / "words.txt")
    (other / "manifest.json").unlink()
    told = ["manifest.json: missing", "tokenizer.txt: missing", "words.txt: not expected"]
    assert [str(d) for d in compare(folder, other)] == told


def test_what_cannot_be_compared_is_said(folder, other):
    change(other, embed=torch.ones(2, 2), extra=torch.ones(1))
    told = {t.name: t.reason for t in compare(folder, other)[0].tensors}
    assert told == {"embed": "[2, 2] torch.float32, expected [2, 3] torch.float32", "extra": "not expected"}


def test_a_broken_header_is_a_difference_and_an_error_that_names_the_file(folder, other):
    (other / "model.safetensors").write_bytes(b"\xff" * 64)
    (other / "state.json").write_text("{")
    weights, state = compare(folder, other)
    assert "model.safetensors: not a safetensors file" in weights.reason
    assert "state.json: not valid JSON" in state.reason
    with pytest.raises(IntegrityError, match=r"other/model\.safetensors: not a safetensors file .* pull it again"):
        compare_tensors(folder / "model.safetensors", other / "model.safetensors")


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=20), st.integers(1, 7))
def test_counts_and_distances_are_those_of_numpy_at_any_block_size(pairs, block):
    x, y = (np.array(side, dtype=np.float32) for side in zip(*pairs, strict=True))
    unequal = x.view(np.int32) != y.view(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        found = compare_elements("t", torch.from_numpy(x), torch.from_numpy(y))
    if not unequal.any():
        assert found is None
        return
    assert (found.elements, found.differing, found.not_finite) == (len(x), unequal.sum(), 0)
    assert found.max_abs == np.abs(x.astype("f8") - y.astype("f8"))[unequal].max()
    assert sum(found.ulps.values()) == unequal.sum()


@settings(max_examples=50)
@given(floats, st.integers(0, 200))
def test_a_distance_is_the_number_of_neighbours_passed(start, steps):
    value = np.float32(start)
    for _ in range(steps):
        value = np.nextafter(value, np.float32(np.inf))
    if not math.isfinite(value):
        return
    found = compare_elements("t", torch.tensor([start]), torch.tensor([float(value)]))
    if not steps:
        assert found is None
        return
    low = 1 << (steps.bit_length() - 1)
    assert (found.max_ulps, found.ulps) == (steps, {f"{low}-{2 * low - 1}" if low > 1 else "1": 1})


def test_zeros_of_other_sign_and_what_is_not_finite():
    x = torch.tensor([0.0, float("nan"), float("inf"), 1.0])
    y = torch.tensor([-0.0, 1.0, float("inf"), 1.0])
    found = compare_elements("t", x, y)
    assert (found.differing, found.not_finite, found.ulps, found.max_abs) == (2, 1, {"0": 1}, 0.0)
    assert str(found) == "t: 2 of 4 elements, at most 0 (0 ulp), 1 not finite"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_measured_in_their_own_ulps(dtype):
    x = torch.ones(3, dtype=dtype)
    y = x.clone()
    y[1] = 1 + torch.finfo(dtype).eps * 3
    assert compare_elements("t", x, y).ulps == {"2-3": 1}


def test_integers_have_no_ulps():
    found = compare_elements("t", torch.tensor([1, 2]), torch.tensor([1, 9]))
    assert (found.differing, found.max_abs, found.ulps) == (1, 7.0, {})


def test_leaves_of_nested_values():
    old = {"a": {"b": 1, "c": [1]}, "d": None}
    assert list(value_differences(old, json.loads(json.dumps(old)))) == []
    new = {"a": {"b": 2, "c": [1]}, "e": True}
    assert list(value_differences(old, new)) == [("a.b", 1, 2), ("e", None, True)]
