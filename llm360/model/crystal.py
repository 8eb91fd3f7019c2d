"""CrystalCoder: a GPT-2-shaped decoder with SwiGLU, partial rotary positions and muP, under the published names.

Values and layout follow the published configuration and weights of LLM360/CrystalCoder (phases 1 to 3).
"""
# transformers is not typed for a strict checker: its classes and decorators count as Any.
# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, slice_logits_to_keep
from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward
from transformers.pytorch_utils import Conv1D
from transformers.utils import can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from llm360.model.crystal_config import CrystalConfig
from llm360.model.rotary import CrystalRotary, rotate

__all__ = ["CrystalConfig", "CrystalForCausalLM", "CrystalModel"]


class OutputProjection(Conv1D):
    """A matrix that writes into the residual stream; its initial values are smaller."""


class CrystalAttention(nn.Module):
    """Causal self-attention with biases; scores are divided by the head size, not its root (muP)."""

    def __init__(self, config: CrystalConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.n_embd // config.n_head
        self.scaling = self.head_dim ** (-1.0 if config.mup_scale_qk_dot_by_d else -0.5)
        self.is_causal = True
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        self.c_proj = OutputProjection(config.n_embd, config.n_embd)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, angles: tuple[Tensor, Tensor], cache: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attended states [batch, length, n_embd] and, from eager attention only, the weights."""
        query, key, value = (self._heads(part) for part in self.c_attn(x).chunk(3, dim=-1))
        query, key = rotate(query, *angles), rotate(key, *angles)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        y, weights = attend(self, query, key, value, attention_mask, scaling=self.scaling, dropout=0.0, **kwargs)
        return self.c_proj(y.reshape(x.shape)), weights

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)


class CrystalMLP(nn.Module):
    """SwiGLU: ``c_fc2`` is the gate, ``c_fc`` the value."""

    def __init__(self, config: CrystalConfig) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.n_inner, config.n_embd)
        self.c_fc2 = Conv1D(config.n_inner, config.n_embd)
        self.c_proj = OutputProjection(config.n_embd, config.n_inner)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, length, n_embd] to the same shape."""
        y: Tensor = self.c_proj(self.c_fc(x) * nn.functional.silu(self.c_fc2(x)))
        return y


class CrystalBlock(GradientCheckpointingLayer):
    """One pre-norm layer: attention, then the feed-forward part."""

    def __init__(self, config: CrystalConfig, layer_idx: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = CrystalAttention(config, layer_idx)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = CrystalMLP(config)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Map [batch, length, n_embd] to the same shape; the rest goes to the attention."""
        x = x + self.attn(self.ln_1(x), **kwargs)[0]
        y: Tensor = x + self.mlp(self.ln_2(x))
        return y


class CrystalPreTrainedModel(PreTrainedModel):
    """What both classes share: the configuration and the initial values."""

    config: CrystalConfig
    config_class = CrystalConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ("CrystalBlock",)
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": CrystalBlock, "attentions": CrystalAttention}  # noqa: RUF012
    # Published files also hold each layer's causal mask, as buffers.
    _keys_to_ignore_on_load_unexpected = (r"\.attn\.(bias|masked_bias)$",)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Truncated normal at 2 sigma (the training parameters); zero biases, unit norms."""
        sigma = self.config.initializer_range
        if isinstance(module, nn.Embedding):
            _truncated_normal(module.weight, sigma)
        elif isinstance(module, Conv1D):
            depth = 2 * self.config.n_layer if isinstance(module, OutputProjection) else 1
            _truncated_normal(module.weight, sigma * math.sqrt(self.config.mup_width_scale / depth))
            init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, CrystalRotary):
            init.copy_(module.inv_freq, module.inverse_frequencies(module.inv_freq.device))


def _truncated_normal(weight: Tensor, sigma: float) -> None:
    init.trunc_normal_(weight, std=sigma, a=-2 * sigma, b=2 * sigma)


class CrystalModel(CrystalPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config: CrystalConfig) -> None:
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList(CrystalBlock(config, i) for i in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.rotary = CrystalRotary(config.rotary_dim)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embeddings."""
        return self.wte

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the token embeddings."""
        self.wte = value

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return the states [batch, length, n_embd] after the last norm, and the cache."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("crystal: read both or neither of input_ids and inputs_embeds; give exactly one")
        x = (self.wte(input_ids) if inputs_embeds is None else inputs_embeds) * self.config.mup_embeddings_scale
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            seen = cache.get_seq_length() if cache is not None else 0
            position_ids = torch.arange(seen, seen + x.shape[1], device=x.device)[None]
        mask = create_causal_mask(self.config, x, attention_mask, cache, position_ids)
        angles = self.rotary(position_ids)
        for block in self.h:
            x = block(x, attention_mask=mask, angles=angles, cache=cache, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(x), cache=cache)


class CrystalForCausalLM(CrystalPreTrainedModel, GenerationMixin):
    """CrystalCoder with its head, which is tied to the embeddings."""

    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}  # noqa: RUF012

    def __init__(self, config: CrystalConfig) -> None:
        super().__init__(config)
        self.transformer = CrystalModel(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.logits_scale = config.mup_output_alpha * config.mup_width_scale
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits [batch, length, vocab_size]; with ``labels`` (-100 is ignored) also the mean loss in nats."""
        out = self.transformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(slice_logits_to_keep(out.last_hidden_state, logits_to_keep)) * self.logits_scale
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, cache=out.cache, hidden_states=out.hidden_states, attentions=out.attentions
        )
