"""The chat format, and conversations as token ids.

    <s>### Human: How do I list files?
    ### Assistant: Use ls.</s>

The roles are AmberChat's (FastChat ``one_shot``). The prompt ends after ``### Assistant:`` and the answer begins with
a space, so the tokenizer never merges across that border. Content that looks like a special token stays text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm360.errors import DataError, TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HUMAN, ASSISTANT = "### Human:", "### Assistant:"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '### Human: ' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ '### Assistant:' }}"
    "{% generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ raise_exception('roles are user and assistant, found ' + message['role']) }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '### Assistant:' }}{% endif %}"
)

Message = Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoded:
    """A conversation as ids; ``answer`` marks the tokens that the assistant wrote, its end token included."""

    ids: list[int]
    answer: list[bool]

    @property
    def border(self) -> int:
        """Return where the last answer begins."""
        return max(i for i, mine in enumerate(self.answer) if mine and not self.answer[i - 1])

    def cut(self, length: int) -> Encoded:
        """Return the first ``length`` tokens."""
        return Encoded(ids=self.ids[:length], answer=self.answer[:length])


def chat_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Give the tokenizer the chat template, which travels with the checkpoint, and a padding token; return it."""
    tokenizer.chat_template = TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # always masked; a new token would change the vocabulary's size
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message]) -> Encoded:
    """Return the ids of a conversation, equal to those of the chat template unless content holds special tokens.

    Raises DataError unless turns go user, assistant, user, assistant ...
    """
    _require_turns(messages)
    ids, answer = [int(tokenizer.bos_token_id)], [False]
    for user, assistant in zip(messages[::2], messages[1::2], strict=True):
        prompt = f"{HUMAN} {user['content']}\n{ASSISTANT}"
        section = _encode_text(tokenizer, f"{prompt} {assistant['content']}")
        ids += [*section.ids, int(tokenizer.eos_token_id)]
        answer += [*(start >= len(prompt) for start, _ in section.offsets), True]
    return Encoded(ids=ids, answer=answer)


def encode_pair(tokenizer: PreTrainedTokenizerFast, row: Mapping[str, Any]) -> tuple[Encoded, Encoded]:
    """Return a preference row's chosen and rejected conversations; their prompts have the same ids."""
    chosen, rejected = (encode(tokenizer, [*row["prompt"], *row[key]]) for key in ("chosen", "rejected"))
    if chosen.ids[: chosen.border] != rejected.ids[: rejected.border]:
        raise TrainingError(
            f"row {row.get('id')!r}: the prompt's ids depend on the answer, so the tokenizer merges across "
            f"{ASSISTANT!r}; use one that splits words at spaces"
        )
    return chosen, rejected


def _encode_text(tokenizer: PreTrainedTokenizerFast, text: str) -> Any:
    raw = tokenizer.backend_tokenizer
    before, raw.encode_special_tokens = raw.encode_special_tokens, True
    try:
        return raw.encode(text, add_special_tokens=False)
    finally:
        raw.encode_special_tokens = before


def _require_turns(messages: Sequence[Message]) -> None:
    roles = [m["role"] for m in messages]
    if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
        raise DataError(f"read the roles {roles}, expected user, assistant, in turn; correct the row or leave it out")
