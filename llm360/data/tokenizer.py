"""A byte-level BPE trained on the sources, with LLaMA's special tokens.

Every string round-trips (all 256 bytes are in the vocabulary), and text that looks like a special token stays
text: a document that contains ``</s>`` never yields the id of ``</s>``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.config import require_positive
from llm360.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

UNK, BOS, EOS = "<unk>", "<s>", "</s>"  # LLaMA's ids 0, 1, 2
ALPHABET = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerParams:
    """vocab_size counts the special and byte tokens; extra_tokens and reserved ones come after it.

    CrystalCoder adds 22 tokens at 32000 to 32021 and reserves 10 more (facts of its tokenizer files).
    """

    vocab_size: int
    sample_mb: float
    extra_tokens: list[str]
    reserved: int

    def __post_init__(self) -> None:
        require_positive(self, "sample_mb")
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
    raw.add_special_tokens([*params.extra_tokens, *reserved])
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


def load_encoder(folder: Path) -> Tokenizer:
    """Return the same tokenizer without transformers, whose import takes seconds: what ``encode`` needs."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode(encoder: Tokenizer, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    """Return the ids of each text, uint32, without special tokens, whatever the texts contain."""
    import numpy as np

    before, encoder.encode_special_tokens = encoder.encode_special_tokens, True
    try:
        batch = encoder.encode_batch_fast(list(texts), add_special_tokens=False)
    finally:
        encoder.encode_special_tokens = before
    return [np.asarray(e.ids, dtype=np.uint32) for e in batch]


def sample_texts(frames: Sequence[pl.DataFrame], *, megabytes: float) -> list[str]:
    """Return whole documents, the first ones of each frame, about ``megabytes`` in all and equal by frame."""
    import polars as pl

    budget = megabytes * 1e6 / max(len(frames), 1)
    texts: list[str] = []
    for frame in frames:
        before = pl.col("text").str.len_bytes().cum_sum().shift(1, fill_value=0)
        texts += frame.filter(before < budget)["text"].to_list()
    return texts
