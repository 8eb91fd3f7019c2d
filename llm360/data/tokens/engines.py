"""The two libraries that turn text into ids, behind one type; neither adds or recognises special tokens."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = npt.NDArray[np.uint32]
Encode = Callable[[Sequence[str]], list[Ids]]


def versions() -> dict[str, str | None]:
    """Return the installed version of each library; None: not installed."""
    return {name: _version(name) for name in ("tiktoken", "tokenizers")}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def with_tokenizers(tokenizer: Tokenizer) -> Encode:
    """Return the reference: what ``tokenizer`` itself makes of a text, its truncation and padding switched off."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[Ids]:
        # One text at a time: a batch would take every core from the other workers, and memory by its size.
        return [_read_only(tokenizer.encode_batch_fast([t], add_special_tokens=False)[0].ids) for t in texts]

    return encode


def _read_only(ids: list[int]) -> Ids:
    array = np.asarray(ids, dtype=np.uint32)
    array.flags.writeable = False
    return array


def with_tiktoken(ranks: Mapping[bytes, int]) -> Encode:
    """Return tiktoken with these ids as ranks and GPT-2's split; no special token is allowed, so no text becomes one.

    It raises ValueError for a run of about a million blanks inside a text (its regex has a limited stack), and is
    n log n for words of any length (measured: 1 MB/s for 50 MB of one letter).
    """
    import tiktoken
    from tiktoken_ext.openai_public import r50k_pat_str  # type: ignore[import-untyped]

    # With no special token at all tiktoken looks for the empty string, at every character (measured: a third slower).
    unused = {"\0unused\0": max(ranks.values()) + 1}
    fast = tiktoken.Encoding("ranks", pat_str=r50k_pat_str, mergeable_ranks=dict(ranks), special_tokens=unused)
    nothing: dict[str, Any] = {"allowed_special": frozenset(), "disallowed_special": ()}
    return lambda texts: [fast.encode_to_numpy(text, **nothing) for text in texts]
