"""Write a suite's checkpoint before the first step: artifacts/init/<suite>/."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import llm360.checkpoint as checkpoints
from llm360.environment import environment, use_threads
from llm360.errors import ConfigError
from llm360.files import manifest_sha256, verify
from llm360.model.build import build_model
from llm360.train.optimizer import OptimizerParams, build_optimizer
from stages._stage import ARTIFACTS, section, stage, threads

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelParams:
    """family names the architecture, config its sizes; seed draws the weights."""

    family: str
    seed: int
    config: dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    args = parser.parse_args(argv)
    out = ARTIFACTS / "init" / args.suite
    with stage(out):
        use_threads(threads())
        params = section(f"models.{args.suite}", ModelParams)
        model = build_model(params.family, params.config, seed=params.seed)
        home = ARTIFACTS / "tokenizers" / args.suite
        verify(home)
        tokenizer = checkpoints.load_tokenizer(home)
        require_vocabulary(model, tokenizer)
        fresh = OptimizerParams(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, clip_norm=1.0)
        checkpoints.save(
            out,
            model=model,
            tokenizer=tokenizer,
            optimizer=build_optimizer(model, fresh),
            state=checkpoints.initial_state(params.seed),
            fields={
                "suite": args.suite,
                "phase": "init",
                "parent": None,
                "tokenizer_sha256": manifest_sha256(home),
                "environment": environment(),
            },
        )
    return 0


def require_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Raise ConfigError when the tokenizer has ids that the model has no embedding for."""
    if len(tokenizer) > model.config.vocab_size:
        raise ConfigError(
            f"models: vocab_size {model.config.vocab_size}, but the tokenizer has {len(tokenizer)} ids; "
            f"make it at least {len(tokenizer)}"
        )


if __name__ == "__main__":
    sys.exit(main())
