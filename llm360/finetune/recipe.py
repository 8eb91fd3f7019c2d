"""The decisions of a finetuning run. Each one is required; the published values stand in the comments.

AmberChat: LLM360/amber-train ``finetune`` and its model card. AmberSafe: its model card and scripts, base as in the
footnote of the paper (checkpoint 355, SFT first, then DPO).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from llm360.errors import ConfigError

Schedule = Literal["cosine", "linear", "constant_with_warmup"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters on the modules named in ``targets``; merged into the weights at the end."""

    r: int
    alpha: int
    dropout: float
    targets: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Decisions that SFT and DPO share; batch counts rows (pairs in DPO) on each device."""

    epochs: int  # AmberChat 3, AmberSafe 3 + 3
    learning_rate: float  # AmberChat 2e-5, AmberSafe 2e-7 (SFT) and 5e-7 (DPO)
    batch: int
    accumulation: int
    schedule: Schedule  # AmberChat cosine
    warmup_ratio: float  # AmberChat 0.04
    weight_decay: float  # AmberChat 0
    clip_norm: float
    max_length: int  # tokens; AmberChat 2048, AmberSafe 512
    bf16: bool  # autocast; the weights stay fp32
    seed: int
    lora: Lora | None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulation", "learning_rate", "clip_norm"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: read {getattr(self, name)}, expected a number above 0")
        if not 0 <= self.warmup_ratio < 1:
            raise ConfigError(f"warmup_ratio: read {self.warmup_ratio}, expected 0 <= ratio < 1 of the steps")
        if self.max_length < 2:
            raise ConfigError(f"max_length: read {self.max_length}, expected at least 2 tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftRecipe(Recipe):
    """Supervised finetuning on the assistant's tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpoRecipe(Recipe):
    """Direct preference optimization, sigmoid loss (arXiv 2305.18290)."""

    beta: float  # AmberSafe 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 0:
            raise ConfigError(f"beta: read {self.beta}, expected a number above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """The checkpoint that finetuning starts from."""

    suite: str
    ckpt: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftParams:
    """Section ``sft.<suite>``; ``instructions`` names the suite whose instruction data is used."""

    base: Base
    instructions: str
    sft: SftRecipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpoParams:
    """Section ``dpo.<suite>``: SFT on the chosen answers, then DPO against its outcome."""

    base: Base
    instructions: str
    sft: SftRecipe
    dpo: DpoRecipe
