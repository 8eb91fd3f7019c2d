from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

Rows = list[dict[str, Any]]

CODE = '''
def add_{n}(a, b):
    """Return the sum of a and b with offset {n}.

    More words.
    """
    return a + b + {n}


first_{n} = 1
second_{n} = 2
third_{n} = 3
'''
ENTRY = "term{n}\n\n   <theory> The entry number {n} of a small dictionary, which explains nothing.\n"
FAQ = "What is the purpose of item number {n}?\n\nThe item number {n} serves as an example. It is short.\n"
PROSE = (
    "The small village number {n} lies between a river and a hill, and nobody knows its real age.\n"
    "Every morning the people walk to the market, where they sell apples, bread and cheese to travellers.\n"
)
TEXTS = {"starcoderdata": CODE, "wikipedia": ENTRY, "stackexchange": FAQ, "book": PROSE}


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """A text of each kind, with ``{n}`` for the number of the document."""
    return TEXTS


@pytest.fixture(scope="session")
def frame() -> Callable[..., pl.DataFrame]:
    """Documents of the given kinds with the columns of Document."""

    def build(*kinds: str, documents: int = 40) -> pl.DataFrame:
        rows = [
            {"id": f"{kind}/{n}", "kind": kind, "source": "made-up", "origin": str(n), "licence": f"L-{kind}"}
            | {"text": TEXTS[kind].format(n=n)}
            for kind in kinds
            for n in range(documents)
        ]
        return pl.DataFrame(rows)

    return build


@pytest.fixture(scope="session")
def trained_tokenizer(frame: Callable[..., pl.DataFrame]) -> PreTrainedTokenizerFast:
    from llm360.data.tokens.tokenizer import TokenizerParams, train_tokenizer

    params = TokenizerParams(kinds=["book"], vocab_size=400, sample_mb=1.0, extra_tokens=[], reserved=0)
    return train_tokenizer(frame(*TEXTS)["text"].to_list(), params)


@pytest.fixture
def tokenizer(trained_tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A copy, since finetuning gives the tokenizer a template."""
    return copy.deepcopy(trained_tokenizer)


@pytest.fixture(scope="session")
def tiny_model() -> Callable[[], LlamaForCausalLM]:
    """Builds the same random two-layer model each time."""

    def build() -> LlamaForCausalLM:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = LlamaConfig(vocab_size=400, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, **sizes)
        return LlamaForCausalLM(config).eval()

    return build


@pytest.fixture(scope="session")
def tensors() -> Callable[[Any], dict[str, bytes]]:
    """Returns a model's weights as bytes by name."""
    return lambda model: {name: value.detach().numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The decisions of an SFT run that takes a second; DPO adds beta."""
    steps = {"epochs": 1, "batch": 4, "accumulation": 1, "max_length": 128, "bf16": False, "seed": 7, "lora": None}
    rate = {"learning_rate": 3e-3, "schedule": "cosine", "warmup_ratio": 0.1, "weight_decay": 0.0, "clip_norm": 1.0}
    return {**steps, **rate}


@pytest.fixture(scope="session")
def questions() -> Callable[[int], Rows]:
    """SFT rows whose answers are easy to learn."""

    def build(count: int) -> Rows:
        answer = {"role": "assistant", "content": "Between a river and a hill."}
        asked = [{"role": "user", "content": f"Where does village {n} lie?"} for n in range(count)]
        return [{"id": str(n), "messages": [question, answer]} for n, question in enumerate(asked)]

    return build


@pytest.fixture(scope="session")
def preferences(questions: Callable[[int], Rows]) -> Callable[[int], Rows]:
    """DPO rows: the right answer against an unhelpful one."""

    def build(count: int) -> Rows:
        rejected = [{"role": "assistant", "content": "Nobody knows its age."}]
        turns = [(r["id"], r["messages"]) for r in questions(count)]
        return [{"id": i, "prompt": m[:1], "chosen": m[1:], "rejected": rejected} for i, m in turns]

    return build
