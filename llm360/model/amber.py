"""Amber: the LLaMA architecture as transformers has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaConfig

    from llm360.model.build import AmberModel


def llama_config(model: AmberModel) -> LlamaConfig:
    """Return the configuration of ``model``: untied, no biases, one key-value head per head, ids 1, 2, 0.

    bos 1, eos 2, pad 0 are those of the published Amber configuration.
    """
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.heads,
        hidden_act="silu",
        max_position_embeddings=model.sequence_length,
        initializer_range=model.init_std,
        rms_norm_eps=model.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
