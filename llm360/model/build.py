"""A model from its family's parameters and a seed, its optimizer groups, and the guard of its positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm360.config import from_mapping
from llm360.errors import ConfigError, TrainingError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class AmberModel:
    """Sizes of a LLaMA; ``init_std`` is the normal's standard deviation for every matrix."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    vocab_size: int
    sequence_length: int
    rms_norm_eps: float
    rope_theta: float
    init_std: float

    def __post_init__(self) -> None:
        _check_sizes(self)


@dataclass(frozen=True, kw_only=True)
class CrystalModel:
    """Sizes and muP scales of a CrystalCoder.

    ``init_std`` is the embeddings' standard deviation; a matrix has init_std * sqrt(width_scale).
    ``width_scale`` is the proxy's width (256) over this one's; it also scales the matrices' learning rate.
    """

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    vocab_size: int
    sequence_length: int
    rotary_dim: int
    layer_norm_eps: float
    init_std: float
    embeddings_scale: float
    output_alpha: float
    width_scale: float

    def __post_init__(self) -> None:
        _check_sizes(self)


def _check_sizes(model: AmberModel | CrystalModel) -> None:
    for name, value in vars(model).items():
        if not value > 0:
            raise ConfigError(f"model: {name} is {value!r}; give a number above 0")
    if model.hidden_size % (2 * model.heads):
        raise ConfigError(
            f"model: hidden_size {model.hidden_size} over heads {model.heads} is not an even whole number, "
            "which rotary positions need; change either"
        )


def _amber(config: Mapping[str, Any]) -> PreTrainedConfig:
    from llm360.model.amber import llama_config

    return llama_config(from_mapping(AmberModel, config, where="model (amber)"))


def _crystal(config: Mapping[str, Any]) -> PreTrainedConfig:
    from llm360.model.crystal_config import CrystalConfig

    model = from_mapping(CrystalModel, config, where="model (crystal)")
    return CrystalConfig(
        vocab_size=model.vocab_size,
        n_positions=model.sequence_length,
        n_embd=model.hidden_size,
        n_layer=model.layers,
        n_head=model.heads,
        n_inner=model.intermediate_size,
        rotary_dim=model.rotary_dim,
        layer_norm_epsilon=model.layer_norm_eps,
        initializer_range=model.init_std,
        mup_embeddings_scale=model.embeddings_scale,
        mup_output_alpha=model.output_alpha,
        mup_width_scale=model.width_scale,
        pad_token_id=2,  # the published data was packed with pad = end
    )


FAMILIES: dict[str, Callable[[Mapping[str, Any]], PreTrainedConfig]] = {"amber": _amber, "crystal": _crystal}


def build_model(family: str, config: Mapping[str, Any], *, seed: int) -> PreTrainedModel:
    """Return the family's model in fp32 with its initial weights, a function of ``config`` and ``seed`` alone.

    The weights are drawn on the CPU, since a GPU's generator gives other numbers; under ``torch.device("meta")``
    none are. The global generators stay as they were. Raises ConfigError on an unknown family or parameter.
    """
    import torch
    from transformers import AutoModelForCausalLM

    import llm360.model.hf  # noqa: F401 - registers our architectures

    if family not in FAMILIES:
        raise ConfigError(f"model: unknown family {family!r}; {did_you_mean(family, FAMILIES)}")
    settings = FAMILIES[family](config)
    meta = torch.get_default_device().type == "meta"
    with torch.random.fork_rng(devices=[]), nullcontext() if meta else torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the GPUs
        model: PreTrainedModel = AutoModelForCausalLM.from_config(settings, dtype=torch.float32)
    return model


def parameter_groups(model: PreTrainedModel, *, weight_decay: float, learning_rate: float) -> list[dict[str, Any]]:
    """Return AdamW's groups: ``params``, ``weight_decay``, ``lr`` and ``lr_scale`` (lr = learning_rate * lr_scale).

    Amber: one group, everything decays, norms and embeddings too. Crystal (muP): matrices learn at mup_width_scale,
    embeddings, norms and biases at 1; norms and biases do not decay. A tied parameter is in one group, once.
    Raises ConfigError for another architecture.
    """
    groups = {"llama": _amber_groups, "crystalcoder": _crystal_groups}
    kind = str(model.config.model_type)
    if kind not in groups:
        raise ConfigError(f"parameter groups: unknown architecture {kind!r}; {did_you_mean(kind, groups)}")
    return [
        {"params": params, "weight_decay": weight_decay * decays, "lr": learning_rate * scale, "lr_scale": scale}
        for params, decays, scale in groups[kind](model)
    ]


_Group = tuple[list["Tensor"], bool, float]  # parameters, whether they decay, scale of the learning rate


def _amber_groups(model: PreTrainedModel) -> list[_Group]:
    return [(list(model.parameters()), True, 1.0)]


def _crystal_groups(model: PreTrainedModel) -> list[_Group]:
    embeddings = [model.get_input_embeddings().weight]
    vectors = [p for p in model.parameters() if p.ndim == 1]  # norms and biases
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embeddings[0]]
    return [(matrices, True, float(model.config.mup_width_scale)), (embeddings, True, 1.0), (vectors, False, 1.0)]


def check_rope_fp32(model: PreTrainedModel) -> None:
    """Raise TrainingError if an inverse frequency of the rotary positions is not fp32, or was not at some time.

    In bf16 the angle at position 2047 is wrong by up to 0.37 rad; casting back to fp32 does not repair it.
    """
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and (wrong := _fault(buffer)):
            raise TrainingError(
                f"{name} {wrong}, expected float32 as computed; do not cast the model: "
                "load it with dtype=torch.float32 and use autocast, or load it anew"
            )


def _fault(buffer: Tensor) -> str:
    import torch

    if buffer.dtype != torch.float32:
        return f"is {str(buffer.dtype).removeprefix('torch.')}"
    for short in (torch.bfloat16, torch.float16):  # beyond the first, 1, no frequency is a short number
        if not buffer.is_meta and len(buffer) > 1 and torch.equal(buffer, buffer.to(short).float()):
            return f"holds numbers rounded to {str(short).removeprefix('torch.')}"
    return ""
