"""The published model a second way (float64, none of our code) over other sizes, and the forms of its files."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import llm360.model.hf  # noqa: F401
from llm360.errors import ConfigError
from llm360.model.crystal import CrystalConfig, CrystalForCausalLM

REFERENCE = Path(__file__).parents[2] / "data" / "crystal_reference" / "small-a"
SETTINGS: dict[str, Any] = json.loads((REFERENCE / "config.json").read_text())
WEIGHTS = load_file(REFERENCE / "model.safetensors")
EXPECTED = load_file(REFERENCE / "expected.safetensors")


def plain_logits(config: Any, weights: dict[str, torch.Tensor], ids: torch.Tensor) -> np.ndarray:
    """Return logits [batch, length, vocab], float64; ``config`` has the published keys, ids are [batch, length]."""
    w = {name.removeprefix("transformer."): value.double().numpy() for name, value in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.layer_norm_epsilon)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]  # stored [in, out]

    def turned(x: np.ndarray) -> np.ndarray:  # pairs of neighbours are complex numbers, turned by position
        count = config.rotary_dim // 2
        angles = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(count) / count)
        z = (x[..., : 2 * count : 2] + 1j * x[..., 1 : 2 * count : 2]) * np.exp(1j * angles)
        return np.concatenate((np.stack((z.real, z.imag), -1).reshape(*x.shape[:-1], -1), x[..., 2 * count :]), -1)

    def attention(x: np.ndarray, name: str) -> np.ndarray:
        batch, length, width = x.shape
        heads = linear(x, f"{name}.c_attn").reshape(batch, length, 3, config.n_head, -1).transpose(2, 0, 3, 1, 4)
        power = 1.0 if config.mup_scale_qk_dot_by_d else 0.5
        scores = turned(heads[0]) @ turned(heads[1]).swapaxes(-1, -2) / heads.shape[-1] ** power
        scores = np.exp(np.where(np.tri(length, dtype=bool), scores, -np.inf) - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ heads[2]
        return linear(mixed.transpose(0, 2, 1, 3).reshape(batch, length, width), f"{name}.c_proj")

    def feed_forward(x: np.ndarray, name: str) -> np.ndarray:
        gate = linear(x, f"{name}.c_fc2")
        return linear(linear(x, f"{name}.c_fc") * gate / (1 + np.exp(-gate)), f"{name}.c_proj")

    x = w["wte.weight"][ids.numpy()] * config.mup_embeddings_scale
    for i in range(config.n_layer):
        x = x + attention(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn")
        x = x + feed_forward(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp")
    return norm(x, "ln_f") @ w["wte.weight"].T * config.mup_output_alpha * config.mup_width_scale


def close(actual: torch.Tensor, expected: np.ndarray | torch.Tensor) -> None:
    """fp32 against float64: rtol 1e-4, of the logits' deviation where one is near 0."""
    expected = torch.as_tensor(expected)
    torch.testing.assert_close(actual.double(), expected.double(), rtol=1e-4, atol=1e-4 * expected.std().item())


@st.composite
def configs(draw: st.DrawFn) -> CrystalConfig:
    head = 2 * draw(st.integers(1, 12))
    heads = draw(st.integers(1, 4))
    return CrystalConfig(
        vocab_size=draw(st.integers(3, 99)),
        n_positions=2048,
        n_embd=heads * head,
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        n_inner=draw(st.integers(1, 70)),
        rotary_dim=2 * draw(st.integers(1, head // 2)),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-6, 1e-3])),
        mup_embeddings_scale=draw(st.floats(0.5, 20)),
        mup_output_alpha=draw(st.floats(0.1, 5)),
        mup_width_scale=draw(st.floats(0.01, 1)),
        mup_scale_qk_dot_by_d=draw(st.booleans()),
    )


def drawn(config: CrystalConfig, seed: int) -> CrystalForCausalLM:
    """Return a model whose every weight matters: biases and norms too, and scores that are far from uniform."""
    model, generator = CrystalForCausalLM(config).eval(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            size = 0.3 if parameter.ndim == 1 else 1.5 * parameter.shape[0] ** -0.5
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model


def test_the_plain_computation_is_the_published_code():
    close(EXPECTED["logits"], plain_logits(SimpleNamespace(**SETTINGS), WEIGHTS, EXPECTED["input_ids"]))


@torch.no_grad()
@given(config=configs(), seed=st.integers(0, 99), cuts=st.sets(st.integers(1, 39), max_size=6), pad=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_other_sizes_scales_and_ways_to_call(config, seed, cuts, pad):
    model = drawn(config, seed)
    ids = torch.randint(config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(seed))
    expected = plain_logits(config, dict(model.named_parameters()), ids)
    close(model(ids, use_cache=False).logits, expected)
    cache, parts = None, []
    for part in ids.tensor_split(sorted(cuts), dim=1):  # several tokens at once, or one, go on from a cache
        out = model(part, cache=cache, use_cache=True)
        cache, parts = out.cache, [*parts, out.logits]
    close(torch.cat(parts, dim=1), expected)
    padded = torch.nn.functional.pad(ids, (pad, 0))
    mask = (torch.arange(40 + pad) >= pad).long().expand(2, -1)
    close(model(padded, attention_mask=mask).logits[:, pad:], expected)  # positions count on from the padding
    close(model(ids, position_ids=torch.arange(40)[None] + 700).logits, expected)  # only distances matter


@torch.no_grad()
def test_one_token_and_the_longest_sequence():
    config = CrystalConfig(**{**SETTINGS, "n_positions": 2048, "n_layer": 1, "rotary_dim": 16})
    model = drawn(config, 1)
    ids = torch.randint(config.vocab_size, (1, 2048), generator=torch.Generator().manual_seed(1))
    expected = plain_logits(config, dict(model.named_parameters()), ids)
    close(model(ids).logits, expected)
    close(model(ids[:, :1]).logits, expected[:, :1])


def write(folder: Path, weights: dict[str, torch.Tensor], **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(SETTINGS | changes))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def as_bin(folder: Path) -> Path:
    """Write what the published branches hold: pickled shards, the head a second time, the causal masks, an index."""
    weights = WEIGHTS | {"lm_head.weight": WEIGHTS["transformer.wte.weight"].clone()}
    for i in range(SETTINGS["n_layer"]):
        weights[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
        weights[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    shards: dict[str, dict[str, torch.Tensor]] = {}
    for number, (name, value) in enumerate(sorted(weights.items())):
        shards.setdefault(f"pytorch_model-{number % 2 + 1:05d}-of-00002.bin", {})[name] = value
    for file, part in shards.items():
        torch.save(part, folder / file)
    index = {
        "metadata": {"total_size": 1},
        "weight_map": {name: file for file, part in shards.items() for name in part},
    }
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    shutil.copy(REFERENCE / "config.json", folder)
    return folder


@torch.no_grad()
def test_published_pickled_shards_load_and_are_saved_as_plain_tensors(tmp_path):
    model, report = AutoModelForCausalLM.from_pretrained(as_bin(tmp_path), output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    close(model(EXPECTED["input_ids"]).logits, EXPECTED["logits"])
    model.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    assert saved.keys() == WEIGHTS.keys()
    assert all(torch.equal(saved[name], WEIGHTS[name]) for name in WEIGHTS)


class Planted:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    shutil.copy(REFERENCE / "config.json", tmp_path)
    torch.save(WEIGHTS | {"planted": Planted(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_weights_load_as_they_are_or_widened_and_save_back(dtype, tmp_path):
    short = {name: value.to(dtype) for name, value in WEIGHTS.items()}
    folder = write(tmp_path, short, torch_dtype=str(dtype).removeprefix("torch."))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert {p.dtype for p in model.parameters()} == {dtype}
    model.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    assert saved.keys() == short.keys()
    assert all(torch.equal(saved[name], short[name]) for name in short)
    wide = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = EXPECTED["input_ids"]
    close(wide(ids).logits, plain_logits(SimpleNamespace(**SETTINGS), short, ids))


@torch.no_grad()
def test_keys_that_the_published_class_writes_are_accepted_and_kept(tmp_path):
    extra = {"transformers_version": "4.36.2", "reorder_and_upcast_attn": False, "initializer_range": 0.02}
    extra |= {"scale_attn_by_inverse_layer_idx": False, "auto_map": {"AutoConfig": "configuration_crystalcoder.C"}}
    model = AutoModelForCausalLM.from_pretrained(write(tmp_path, WEIGHTS, **extra))
    close(model(EXPECTED["input_ids"]).logits, EXPECTED["logits"])
    model.save_pretrained(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    mine = {"architectures"}  # our class is another name for it
    assert {key: again[key] for key in SETTINGS.keys() - mine} == {key: SETTINGS[key] for key in SETTINGS.keys() - mine}
    assert again["initializer_range"] == 0.02


def test_sizes_that_are_left_open_are_the_published_codes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS | {"n_inner": None, "rotary_dim": None}))
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.n_inner, config.rotary_dim) == (4 * 64, 64 // 4)


def test_scores_divided_by_the_layers_number_are_refused():
    with pytest.raises(ConfigError, match="scale_attn_by_inverse_layer_idx is True; only False is built"):
        CrystalConfig(**{**SETTINGS, "scale_attn_by_inverse_layer_idx": True})
