"""A mirror of made-up benchmarks and models small enough to answer them in a second."""

from __future__ import annotations

import pytest

from llm360.evaluation.benchmarks import BenchmarkParams, build


@pytest.fixture(scope="session")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation") / "benchmarks"
    build(folder, BenchmarkParams(source="local"))
    return folder


@pytest.fixture(scope="session")
def make_model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def make(seed: int, *, window: int = 96) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=384, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=window, initializer_range=1.0,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()

    return make
