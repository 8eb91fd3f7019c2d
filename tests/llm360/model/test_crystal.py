from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import llm360.model.hf  # noqa: F401
from llm360.errors import ConfigError
from llm360.model.crystal import CrystalConfig, CrystalForCausalLM
from llm360.model.rotary import CrystalRotary

REFERENCE = Path(__file__).parents[2] / "data" / "crystal_reference" / "small-a"
SMALL = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 48, "rotary_dim": 4}


@pytest.fixture(scope="module")
def model() -> CrystalForCausalLM:
    return AutoModelForCausalLM.from_pretrained(REFERENCE, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(REFERENCE / "expected.safetensors")


def small(**changes: object) -> CrystalForCausalLM:
    torch.manual_seed(0)
    return CrystalForCausalLM(CrystalConfig(**{**SMALL, **changes})).eval()


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    # the logits' deviation is 0.02; fp32 sums in another order differ by up to 1e-7 where a logit is near 0
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=5e-7)


def test_published_config_loads_as_our_class(model):
    assert type(model) is CrystalForCausalLM
    assert model.config.hidden_size == model.config.n_embd == 64
    assert model.config.num_hidden_layers == 2


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_are_the_published_codes(attention, expected):
    model = AutoModelForCausalLM.from_pretrained(REFERENCE, dtype=torch.float32, attn_implementation=attention)
    close(model(expected["input_ids"], use_cache=False).logits, expected["logits"])


@torch.no_grad()
@pytest.mark.parametrize("first", [1, 7, 32, 47])
def test_logits_through_the_cache_are_the_published_codes(first, model, expected):
    ids = expected["input_ids"]
    out = model(ids[:, :first], use_cache=True)
    logits = [out.logits]
    for column in ids[:, first:].T:
        out = model(column[:, None], cache=out.cache, use_cache=True)
        logits.append(out.logits)
    close(torch.cat(logits, dim=1), expected["logits"])


@torch.no_grad()
def test_old_name_of_the_cache_still_works(model, expected):
    ids = expected["input_ids"]
    cache = model(ids[:, :40], use_cache=True).cache
    close(model(ids[:, 40:], past_key_values=cache).logits, expected["logits"][:, 40:])


@torch.no_grad()
def test_left_padding_changes_nothing(model, expected):
    ids = expected["input_ids"][:, :8]
    padded = torch.cat((torch.full((2, 5), 2), ids), dim=1)
    mask = (torch.arange(13) >= 5).long().expand(2, -1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = model(padded, attention_mask=mask, position_ids=positions).logits
    close(logits[:, 5:], expected["logits"][:, :8])


@torch.no_grad()
def test_greedy_generation_is_the_teacher_forced_argmax(model, expected):
    prompt = expected["input_ids"][:, :16]
    output = model.generate(prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False, eos_token_id=None)
    predicted = model(output, use_cache=False).logits.argmax(-1)
    assert torch.equal(output[:, 16:], predicted[:, 15:-1])


def test_saved_names_and_bytes_are_the_published_ones(model, tmp_path):
    model.save_pretrained(tmp_path)
    before, after = load_file(REFERENCE / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_round_trip_is_bitwise(tmp_path):
    first = small()
    first.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(20)[None]
    assert torch.equal(first(ids).logits, again(ids).logits)
    assert again.lm_head.weight is again.transformer.wte.weight


def test_saving_twice_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        small().save_pretrained(tmp_path / name)
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_published_extras_are_ignored_and_no_code_is_run(tmp_path, expected):
    weights = load_file(REFERENCE / "model.safetensors")
    weights["lm_head.weight"] = weights["transformer.wte.weight"].clone()
    weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool)
    weights["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, tmp_path / "model.safetensors")
    settings = json.loads((REFERENCE / "config.json").read_text())
    settings["auto_map"] = {
        "AutoConfig": "configuration_crystalcoder.CrystalCoderConfig",
        "AutoModelForCausalLM": "modeling_crystalcoder.CrystalCoderLMHeadModel",
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    close(model(expected["input_ids"]).logits, expected["logits"])
    model.config.save_pretrained(tmp_path / "again")
    assert "auto_map" not in (tmp_path / "again" / "config.json").read_text()


@pytest.mark.parametrize("cast", ["to", "load", "half"])
def test_rope_stays_fp32(cast, expected):
    model = AutoModelForCausalLM.from_pretrained(REFERENCE, dtype=torch.bfloat16 if cast == "load" else torch.float32)
    exact = CrystalRotary(4).inv_freq
    model = {"to": lambda: model.to(torch.bfloat16), "half": model.half, "load": lambda: model}[cast]()
    assert model.transformer.wte.weight.dtype in (torch.bfloat16, torch.float16)
    assert model.transformer.rotary.inv_freq.dtype == torch.float32
    assert torch.equal(model.transformer.rotary.inv_freq, exact)
    assert model.transformer.rotary(torch.arange(3)[None])[0].dtype == torch.float32
    assert "transformer.rotary.inv_freq" not in model.state_dict()


def test_rope_is_fp32_under_autocast(model):
    positions = torch.arange(2048)[None]
    with torch.autocast("cpu", torch.bfloat16):
        cos, sin = model.transformer.rotary(positions)
    assert cos.dtype == sin.dtype == torch.float32
    assert torch.equal(cos, model.transformer.rotary(positions)[0])


def test_initial_values_are_truncated_normals_of_the_mup_sizes():
    model = small(n_embd=128, n_inner=256, vocab_size=512, mup_width_scale=0.25)
    hidden = 0.073 * 0.25**0.5
    sigmas = {"wte.weight": 0.073, "c_attn.weight": hidden, "c_fc.weight": hidden, "c_fc2.weight": hidden}
    sigmas["c_proj.weight"] = hidden / (2 * model.config.n_layer) ** 0.5
    for name, weight in model.named_parameters():
        for end, sigma in sigmas.items():
            if name.endswith(end):
                assert weight.abs().max() <= 2 * sigma
                # a normal cut at 2 sigma keeps 0.8796 of its deviation
                assert weight.std().item() == pytest.approx(0.8796 * sigma, rel=0.03)
        if weight.ndim == 1:
            assert torch.all(weight == (1.0 if ".ln_" in name and name.endswith("weight") else 0.0))


def test_loss_is_the_mean_over_the_next_tokens(model, expected):
    ids = expected["input_ids"]
    with torch.no_grad():
        out = model(ids, labels=ids)
    true = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(out.loss, true)


def test_gradient_checkpointing_gives_the_same_gradients():
    ids = torch.arange(24)[None]
    gradients = []
    for checkpointing in (False, True):
        model = small().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append(model.transformer.h[0].attn.c_attn.weight.grad)
    assert torch.equal(*gradients)


def test_hidden_states_can_be_recorded(model, expected):
    out = model(expected["input_ids"], output_hidden_states=True)
    assert len(out.hidden_states) == model.config.n_layer + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_head": 5}, "n_embd 32 is not a multiple of n_head 5"),
        ({"rotary_dim": 3}, "rotary_dim 3 is not an even number from 2 to 16"),
        ({"rotary_dim": 18}, "rotary_dim 18 is not an even number"),
        ({"activation_function": "gelu"}, "activation_function is 'gelu'; only 'swiglu'"),
        ({"position_embedding_type": "learned"}, "only 'rotary'"),
        ({"resid_pdrop": 0.1}, "resid_pdrop is 0.1"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ],
)
def test_another_model_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        CrystalConfig(**{**SMALL, **change})


def test_a_changed_config_on_disk_is_refused(tmp_path):
    shutil.copy(REFERENCE / "config.json", tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text()) | {"activation_function": "gelu"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="swiglu"):
        AutoConfig.from_pretrained(tmp_path)


def test_both_kinds_of_input_are_refused(model):
    with pytest.raises(ValueError, match="exactly one"):
        model()
