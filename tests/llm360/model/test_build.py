from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from transformers import AutoModelForCausalLM

from llm360.errors import ConfigError, TrainingError
from llm360.model.build import build_model, check_rope_fp32, parameter_groups

SIZES = {"hidden_size": 32, "intermediate_size": 48, "layers": 2, "heads": 2, "vocab_size": 64, "sequence_length": 32}
AMBER = {**SIZES, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "init_std": 0.02}
MUP = {"embeddings_scale": 14.6, "output_alpha": 2.22, "width_scale": 0.0625}
CRYSTAL = {**SIZES, **MUP, "rotary_dim": 4, "layer_norm_eps": 1e-5, "init_std": 0.073}
FAMILIES: dict[str, dict[str, Any]] = {"amber": AMBER, "crystal": CRYSTAL}
PAPER: dict[str, Any] = {"hidden_size": 4096, "layers": 32, "heads": 32, "sequence_length": 2048}

both = pytest.mark.parametrize("family", FAMILIES)


def built(family: str, seed: int = 11111) -> Any:
    return build_model(family, FAMILIES[family], seed=seed)


def weights(model: Any) -> bytes:
    return save({name: p.detach() for name, p in model.named_parameters()})


@both
def test_equal_seeds_give_equal_bytes(family):
    torch.manual_seed(1)
    first = weights(built(family))
    torch.manual_seed(2)
    assert weights(built(family)) == first
    assert weights(built(family, seed=11112)) != first


@both
def test_global_generator_is_untouched(family):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    built(family)
    assert torch.equal(torch.get_rng_state(), before)


@both
def test_model_is_fp32_whatever_the_default(family):
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = built(family)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert weights(model) == weights(built(family))
    check_rope_fp32(model)


@both
def test_built_model_loads_back_bitwise(family, tmp_path):
    model = built(family)
    model.save_pretrained(tmp_path)
    assert weights(AutoModelForCausalLM.from_pretrained(tmp_path)) == weights(model)


@pytest.mark.parametrize(
    ("family", "changes", "parameters"),
    [
        ("amber", {"intermediate_size": 11008, "vocab_size": 32000}, 6_738_415_616),
        ("crystal", {"intermediate_size": 10922, "vocab_size": 32032, "rotary_dim": 32}, 6_575_278_720),
    ],
)
def test_paper_sizes_on_the_meta_device(family, changes, parameters):
    with torch.device("meta"):
        model = build_model(family, {**FAMILIES[family], **PAPER, **changes}, seed=1)
    assert all(p.is_meta for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_amber_is_an_untied_llama_without_biases():
    model = built("amber")
    names = dict(model.named_parameters())
    assert not [name for name in names if name.endswith("bias")]
    assert "lm_head.weight" in names
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    config = model.config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 0)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}


@both
def test_groups_cover_every_parameter_once(family):
    model = built(family)
    grouped = [id(p) for group in parameter_groups(model, weight_decay=0.1, learning_rate=1.0) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


@given(decay=st.floats(0, 1), rate=st.floats(1e-6, 1))
@settings(max_examples=20, deadline=None)
def test_groups_scale_the_rate_and_the_decay(decay, rate):
    with torch.device("meta"):
        model = build_model("crystal", CRYSTAL, seed=1)
    groups = parameter_groups(model, weight_decay=decay, learning_rate=rate)
    name_of = {id(p): name for name, p in model.named_parameters()}
    for group in groups:
        assert group["lr"] == rate * group["lr_scale"]
        for name in (name_of[id(p)] for p in group["params"]):
            vector = name.endswith("bias") or ".ln_" in name
            assert group["weight_decay"] == (0.0 if vector else decay)
            assert group["lr_scale"] == (1.0 if vector or "wte" in name else 0.0625)


def test_amber_decays_everything():
    (group,) = parameter_groups(built("amber"), weight_decay=0.1, learning_rate=3e-4)
    assert (group["weight_decay"], group["lr_scale"], group["lr"]) == (0.1, 1.0, 3e-4)


@both
def test_groups_make_an_optimizer_that_moves_every_parameter(family):
    model = built(family)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.1, learning_rate=1e-3))
    ids = torch.arange(32)[None]
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    assert not [name for name, p in model.named_parameters() if torch.equal(p, before[name])]


@both
def test_guard_accepts_what_is_built(family):
    model = built(family)
    assert [name for name, _ in model.named_buffers() if name.endswith("inv_freq")]
    check_rope_fp32(model)


def test_guard_names_the_buffer_that_was_cast():
    model = built("amber").to(torch.bfloat16)
    with pytest.raises(TrainingError, match=r"model.rotary_emb.inv_freq is bfloat16, expected float32"):
        check_rope_fp32(model)


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_guard_sees_a_cast_there_and_back(short):
    model = built("amber").to(short).to(torch.float32)
    with pytest.raises(TrainingError, match="rounded to"):
        check_rope_fp32(model)


def test_guard_accepts_a_cast_crystal():
    check_rope_fp32(built("crystal").to(torch.bfloat16))


def test_unknown_family():
    with pytest.raises(ConfigError, match=r"unknown family 'crystl'; did you mean 'crystal'\?"):
        build_model("crystl", CRYSTAL, seed=1)


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 4}, "unknown key 'hiden_size'; did you mean 'hidden_size'"),
        ({"layers": 0}, "layers is 0; give a number above 0"),
        ({"init_std": float("nan")}, "init_std is nan"),
        ({"heads": 3}, "hidden_size 32 over heads 3"),
        ({"heads": 32}, "not an even whole number"),
        ({"vocab_size": "64"}, "expected int"),
    ],
)
def test_bad_parameters_are_named(family, change, message):
    with pytest.raises(ConfigError, match=message):
        build_model(family, {**FAMILIES[family], **change}, seed=1)


@both
def test_every_parameter_is_required(family):
    for name in FAMILIES[family]:
        with pytest.raises(ConfigError, match=f"missing {name}"):
            build_model(family, {k: v for k, v in FAMILIES[family].items() if k != name}, seed=1)


def test_groups_of_another_architecture_are_refused():
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1))
    with pytest.raises(ConfigError, match="unknown architecture 'gpt2'"):
        parameter_groups(model, weight_decay=0.1, learning_rate=1.0)
