"""A byte-level BPE trained on the sources, with LLaMA's special tokens.

All 256 bytes are in the vocabulary, and no special token is made by merges, so ``encoder.py`` gives every string back
and never makes a special token out of text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.config import require_positive
from llm360.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNK, BOS, EOS = "<unk>", "<s>", "</s>"  # LLaMA's ids 0, 1, 2
ALPHABET = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerParams:
    """vocab_size counts the special and byte tokens; extra_tokens and reserved ones come after it.

    kinds are what it is trained on, in any order: named, so that a kind for one suite changes no other's tokenizer.

    CrystalCoder adds 22 tokens at 32000 to 32021 and reserves 10 more (facts of its tokenizer files).
    """

    vocab_size: int
    kinds: list[str]
    sample_mb: float
    extra_tokens: list[str]
    reserved: int

    def __post_init__(self) -> None:
        require_positive(self, "sample_mb")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ConfigError(f"kinds: read {self.kinds}, expected at least one kind of sources, each once")
        if self.vocab_size < ALPHABET + len((UNK, BOS, EOS)) or self.reserved < 0:
            raise ConfigError(
                f"vocab_size {self.vocab_size}, reserved {self.reserved}: expected at least the {ALPHABET} bytes and "
                f"3 special tokens, and no negative number"
            )


def train_tokenizer(texts: Iterable[str], params: TokenizerParams) -> PreTrainedTokenizerFast:
    """Train on ``texts`` and return a tokenizer of ``vocab_size`` + extra + reserved ids.

    Raises DataError when the texts are too few to fill the vocabulary.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        special_tokens=[UNK, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    if raw.get_vocab_size() != params.vocab_size:
        raise DataError(
            f"the texts gave {raw.get_vocab_size()} tokens, expected {params.vocab_size}; "
            f"raise sample_mb, add sources or lower vocab_size"
        )
    reserved = [f"<reserved_{i}>" for i in range(params.reserved)]
    added = [*params.extra_tokens, *reserved]
    if raw.add_special_tokens(added) != len(added) or raw.get_vocab_size() != params.vocab_size + len(added):
        raise ConfigError(
            f"extra_tokens: read {params.extra_tokens}, of which one is twice there or a token that text has"
        )
    return _wrap(raw, params.extra_tokens)


def _wrap(raw: object, extra: Sequence[str]) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token=UNK, bos_token=BOS, eos_token=EOS, clean_up_tokenization_spaces=False
    )
    if extra:
        tokenizer.add_special_tokens({"additional_special_tokens": list(extra)})
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer that was saved in ``folder``; no network, no code from the folder."""
    from transformers import PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    return tokenizer


def sample_texts(kinds: Sequence[Iterable[str]], *, megabytes: float) -> Iterator[str]:
    """Yield whole documents, the first ones of each kind, about ``megabytes`` (UTF-8) in all and equal by kind.

    Reads no further in a kind than its share; a kind that has less is not made up for by the others.
    """
    share = megabytes * 1e6 / max(len(kinds), 1)
    for kind in kinds:
        size = 0
        for text in kind:
            yield text
            size += len(text.encode())
            if size >= share:
                break
