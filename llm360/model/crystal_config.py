"""CrystalCoder's configuration, with the published keys."""
# transformers is not typed for a strict checker: its classes count as Any.
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from llm360.errors import ConfigError

# What the architecture is; a configuration that says otherwise describes another model.
FIXED: dict[str, Any] = {
    "activation_function": "swiglu",
    "position_embedding_type": "rotary",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
}


class CrystalConfig(PreTrainedConfig):
    """The published configuration's keys; defaults are CrystalCoder's values.

    As in the published code, a null n_inner stands for 4 * n_embd, and a null rotary_dim for the whole head.
    ``initializer_range`` is the standard deviation of the embeddings before truncation (0.073, the training
    parameters'). Raises ConfigError for a model that this class does not compute.
    """

    model_type = "crystalcoder"
    keys_to_ignore_at_inference = ("cache",)
    attribute_map = {  # noqa: RUF012 - read by transformers as a plain class attribute
        "hidden_size": "n_embd",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    vocab_size: int = 32032
    n_positions: int = 2048
    n_embd: int = 4096
    n_layer: int = 32
    n_head: int = 32
    n_inner: int = 10922
    rotary_dim: int = 32
    activation_function: str = "swiglu"
    position_embedding_type: str = "rotary"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    attn_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    resid_pdrop: float = 0.0
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.073
    mup_embeddings_scale: float = 14.6
    mup_output_alpha: float = 2.22
    mup_width_scale: float = 0.0625
    mup_scale_qk_dot_by_d: bool = True
    use_cache: bool = True
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        kwargs.pop("auto_map", None)  # it names code files of the published repository, which are never run
        super().__post_init__(**kwargs)
        _check_kind(self)
        width = _head_size(self)
        self.n_inner = self.n_inner or 4 * self.n_embd
        self.rotary_dim = self.rotary_dim or width
        _check_rotary(self.rotary_dim, width)


def _check_kind(config: CrystalConfig) -> None:
    for key, expected in FIXED.items():
        if getattr(config, key) != expected:
            raise ConfigError(f"crystal: {key} is {getattr(config, key)!r}; only {expected!r} is built, set it to that")


def _head_size(config: CrystalConfig) -> int:
    width, left = divmod(config.n_embd, config.n_head)
    if left:
        raise ConfigError(f"crystal: n_embd {config.n_embd} is not a multiple of n_head {config.n_head}; change either")
    return width


def _check_rotary(dim: int, width: int) -> None:
    if dim % 2 or not 2 <= dim <= width:
        raise ConfigError(f"crystal: rotary_dim {dim} is not an even number from 2 to {width} (head size)")
