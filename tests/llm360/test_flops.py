from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llm360.flops import PEAKS, datasheet_flops, flops_per_token, meter, peak_flops
from llm360.model.build import build_model
from llm360.train.distributed import World

LENGTH = 16
SIZES = {"hidden_size": 32, "intermediate_size": 48, "layers": 3, "heads": 4, "vocab_size": 96, "init_std": 0.02}
SIZES |= {"sequence_length": LENGTH}
FAMILIES = {"amber": {"rms_norm_eps": 1e-6, "rope_theta": 1e4}}
FAMILIES["crystal"] = {"rotary_dim": 4, "layer_norm_eps": 1e-5, "embeddings_scale": 14.6, "output_alpha": 2.22}
FAMILIES["crystal"] |= {"width_scale": 0.5}


@pytest.mark.parametrize("family", FAMILIES)
def test_training_takes_three_times_what_torch_counts_in_the_forward_pass(family):
    """Counted apart: the matrix products by torch, attention by hand, for torch knows no FLOPs of a fused one."""
    model = build_model(family, SIZES | FAMILIES[family], seed=0)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, LENGTH, dtype=torch.long), use_cache=False)
    counts = counter.get_flop_counts()["Global"]
    products = counts[torch.ops.aten.mm] + counts.get(torch.ops.aten.addmm, 0)
    attention = 12 * 3 * 32 * LENGTH
    assert flops_per_token(model, LENGTH) == pytest.approx(3 * products / LENGTH + attention)


def test_amber_7b_takes_its_published_parameters_times_six_and_attention():
    config = {"hidden_size": 4096, "intermediate_size": 11008, "layers": 32, "heads": 32, "vocab_size": 32000}
    config |= {"sequence_length": 2048, "init_std": 0.02, **FAMILIES["amber"]}
    with torch.device("meta"):
        model = build_model("amber", config, seed=0)
    norms, embedding = (2 * 32 + 1) * 4096, 32000 * 4096
    expected = 6 * (6_738_415_616 - norms - embedding) + 12 * 32 * 4096 * 2048
    assert flops_per_token(model, 2048) == expected


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA A100 80GB PCIe", 312e12, 19.5e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12),
        ("NVIDIA H100 PCIe", 756e12, 51.2e12),
        ("NVIDIA H200", 989.4e12, 66.9e12),
        ("NVIDIA H200 NVL", 835.5e12, 60e12),
        ("NVIDIA L40S", 362e12, 91.6e12),
    ],
)
def test_a_gpu_is_known_by_the_name_that_its_driver_gives(name, bf16, fp32):
    assert datasheet_flops(name, "bf16", tf32=False) == pytest.approx(bf16)
    assert datasheet_flops(name, "fp32", tf32=False) == pytest.approx(fp32)
    assert fp32 < datasheet_flops(name, "fp32", tf32=True) < bf16


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla V100-SXM2-16GB", "cpu"])
def test_an_unknown_gpu_and_a_part_of_one_have_no_datasheet(name):
    assert datasheet_flops(name, "bf16", tf32=False) is None


def test_more_precision_is_never_faster():
    assert all(bf16 > tf32 > fp32 for bf16, tf32, fp32 in PEAKS.values())


def test_without_a_datasheet_the_rate_of_a_matrix_product_is_measured_once_and_draws_nothing():
    before = torch.get_rng_state()
    rate = peak_flops("cpu", "fp32")
    assert torch.equal(torch.get_rng_state(), before)
    assert 1e8 < rate < 1e14
    assert peak_flops(torch.device("cpu"), "fp32") == rate


def test_a_gpu_in_the_table_is_not_measured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert peak_flops("cuda", "bf16") == pytest.approx(989.4e12)


def test_the_peak_of_a_run_is_that_of_all_its_ranks():
    model = build_model("amber", SIZES | FAMILIES["amber"], seed=0)
    one, four = (
        meter(model, sequence_length=LENGTH, precision="fp32", world=World(0, size, 1, torch.device("cpu"), None))
        for size in (1, 4)
    )
    assert one.flops_per_token == flops_per_token(model, LENGTH)
    assert one.mfu(1000.0) == pytest.approx(4 * four.mfu(1000.0))
    assert one.mfu(one.peak_flops / one.flops_per_token) == pytest.approx(1.0)
