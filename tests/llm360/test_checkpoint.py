from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import llm360.checkpoint as checkpoints
from llm360.errors import IntegrityError, TrainingError
from llm360.files import entries, verify
from llm360.model.build import build_model
from llm360.train.optimizer import OptimizerParams, build_optimizer

AMBER = {"rms_norm_eps": 1e-6, "rope_theta": 1e4}
SIZES = {"hidden_size": 16, "intermediate_size": 24, "layers": 1, "heads": 2, "init_std": 0.02, "sequence_length": 16}
ADAMW = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)


@pytest.fixture
def trained(tokenizer):
    model = build_model("amber", SIZES | AMBER | {"vocab_size": len(tokenizer)}, seed=1)
    optimizer = build_optimizer(model, ADAMW)
    step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    ids = torch.arange(32).view(2, 16)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def save(folder, model, optimizer, tokenizer):
    rng = checkpoints.rng_state()
    counts = {"step": 1, "phase_step": 1, "tokens_seen": 32, "chunks_seen": 1, "chunk": 0}
    state = dataclasses.replace(checkpoints.initial_state(0), **counts, torch_rng=rng)
    return checkpoints.save(
        folder, model=model, tokenizer=tokenizer, optimizer=optimizer, state=state, fields={"suite": "tiny", "ckpt": 0}
    )


def test_training_goes_on_bit_for_bit_from_a_checkpoint(tmp_path, trained, tokenizer):
    model, optimizer = trained
    save(tmp_path / "c", model, optimizer, tokenizer)
    again = checkpoints.load_model(tmp_path / "c").train()
    restored = build_optimizer(again, ADAMW)
    checkpoints.restore_optimizer(tmp_path / "c", again, restored)
    for _ in range(3):
        step(model, optimizer)
        step(again, restored)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_equal_state_gives_equal_bytes(tmp_path, trained, tokenizer):
    one, two = (save(tmp_path / name, *trained, tokenizer) for name in ("a", "b"))
    assert one == two
    assert entries(tmp_path / "a") == entries(tmp_path / "b")


def test_plain_transformers_loads_it(tmp_path, trained, tokenizer):
    save(tmp_path / "c", *trained, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "c")
    assert model.dtype == torch.float32
    assert AutoTokenizer.from_pretrained(tmp_path / "c")("def f")["input_ids"] == tokenizer("def f")["input_ids"]


def test_no_pickle_and_every_tensor_named(tmp_path, trained, tokenizer):
    save(tmp_path / "c", *trained, tokenizer)
    assert not [p for p in (tmp_path / "c").iterdir() if p.suffix in (".bin", ".pt", ".pth", ".pkl")]
    moments = load_file(tmp_path / "c/optimizer.safetensors")
    names = {n for n, _ in trained[0].named_parameters()}
    assert {k.split("|")[0] for k in moments} == names | {"step"}
    assert all(t.dtype == torch.float32 for t in moments.values())


def test_less_precision_than_trained_is_never_saved(tmp_path, trained, tokenizer):
    model, optimizer = trained
    model.to(torch.bfloat16)
    with pytest.raises(TrainingError, match=r"is torch\.bfloat16, expected torch\.float32; keep master weights"):
        save(tmp_path / "c", model, optimizer, tokenizer)
    assert not list(tmp_path.iterdir())


def test_another_models_optimizer_state_is_refused(tmp_path, trained, tokenizer):
    save(tmp_path / "c", *trained, tokenizer)
    other = build_model("amber", SIZES | AMBER | {"vocab_size": len(tokenizer), "layers": 2}, seed=1)
    with pytest.raises(IntegrityError, match="does not fit the model"):
        checkpoints.restore_optimizer(tmp_path / "c", other, build_optimizer(other, ADAMW))


def test_an_altered_weight_file_is_refused_before_it_is_loaded(tmp_path, trained, tokenizer):
    save(tmp_path / "c", *trained, tokenizer)
    weights = tmp_path / "c/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"model\.safetensors: sha256"):
        checkpoints.load_model(tmp_path / "c")


def test_the_random_state_comes_back(tmp_path, trained, tokenizer):
    torch.manual_seed(4)
    save(tmp_path / "c", *trained, tokenizer)
    expected = torch.rand(3)
    checkpoints.set_rng_state(checkpoints.TrainState.read(tmp_path / "c").torch_rng)
    assert torch.equal(torch.rand(3), expected)


def test_the_first_random_state_depends_on_its_seed_alone():
    torch.rand(3)
    one = checkpoints.initial_state(7)
    before = torch.get_rng_state()
    assert checkpoints.initial_state(7) == one != checkpoints.initial_state(8)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_manifest_says_what_it_is(tmp_path, trained, tokenizer):
    save(tmp_path / "c", *trained, tokenizer)
    manifest = verify(tmp_path / "c")
    assert (manifest["dtype"], manifest["optimizer"], manifest["tokens_seen"]) == ("float32", True, 32)
    state = json.loads((tmp_path / "c/state.json").read_text())
    assert state["step"] == manifest["step"] == 1


def test_lower_precision_is_saved_only_where_the_manifest_says_so(tmp_path, trained, tokenizer):
    model, _ = trained
    static = checkpoints.static_files(model.to(torch.bfloat16), tokenizer)
    tensors = checkpoints.Tensors(dict(model.named_parameters()), None)
    given = {"static": static, "tensors": tensors, "state": checkpoints.initial_state(0), "fields": {}}
    checkpoints.write(tmp_path / "said", **given, dtype="bfloat16")
    assert verify(tmp_path / "said")["dtype"] == "bfloat16"
    with pytest.raises(TrainingError, match=r"expected torch\.float32"):
        checkpoints.write(tmp_path / "unsaid", **given)


@pytest.mark.parametrize("limit", [200, 2_000, 20_000])
def test_large_tensors_are_several_files_that_transformers_reads(tmp_path, trained, tokenizer, monkeypatch, limit):
    monkeypatch.setattr(checkpoints, "MAX_FILE_BYTES", limit)
    model, optimizer = trained
    save(tmp_path / "c", model, optimizer, tokenizer)
    assert len(list((tmp_path / "c").glob("model-*.safetensors"))) > 1
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "c")
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    restored = build_optimizer(again, ADAMW)
    checkpoints.restore_optimizer(tmp_path / "c", again, restored)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(optimizer.state[a]["exp_avg_sq"], restored.state[b]["exp_avg_sq"])
    assert checkpoints.carried_files(tmp_path / "c").keys() == checkpoints.static_files(model, tokenizer).keys()
