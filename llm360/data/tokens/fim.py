"""Fill in the middle at token level, as StarCoder's and CrystalCoder's data preparation, but drawn by document.

A document's tokens are cut at two places into p, m, s and written in one of two orders (Bavarian et al. 2022):

    PSM   <prefix> p <suffix> s <middle> m
    SPM   <prefix> <suffix> s <middle> p m

Four draws decide: the little-endian uint64 of sha256("fim/<seed>/<document>/<epoch>"), in turn whether to change the
document, which order, and the two cuts. A cut is floor(draw * (n + 1) / 2^64), each of the n + 1 places between tokens
alike but for less than (n + 1) / 2^64. So nothing depends on rank, order of files or process.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llm360.data.tokens.tokenizer import BOS, EOS, UNK
from llm360.errors import ConfigError, DataError

if TYPE_CHECKING:
    from llm360.data.mixture import Fim
    from llm360.data.tokens.encoder import Encoder

Ids = npt.NDArray[np.uint32]
RANGE = 2**64


@dataclasses.dataclass(frozen=True, kw_only=True)
class FimIds:
    """rate: the share of documents that are changed; spm_rate: of these, in SPM order; the ids of the three tokens."""

    rate: float
    spm_rate: float
    prefix: int
    middle: int
    suffix: int


def fim_ids(fim: Fim, encoder: Encoder) -> FimIds:
    """Return ``fim`` with ids; raises ConfigError for a token that is no special one, or named twice."""
    names = (fim.prefix, fim.middle, fim.suffix)
    if len(set(names)) < len(names):
        raise ConfigError(f"fim: read prefix, middle, suffix {', '.join(names)}; expected three different tokens")
    if taken := sorted({UNK, BOS, EOS} & set(names)):
        raise ConfigError(f"fim: {taken[0]!r} has a meaning of its own, expected a token for this alone; add one")
    prefix, middle, suffix = map(encoder.token_id, names)
    return FimIds(rate=fim.rate, spm_rate=fim.spm_rate, prefix=prefix, middle=middle, suffix=suffix)


def fill_in_the_middle(ids: Ids, fim: FimIds, *, seed: int, document: str, epoch: int) -> Ids | None:
    """Return a document's tokens in PSM or SPM order, a new uint32 array; None: this document stays as it is.

    ids: without the end token, which is to follow the result. A document without tokens stays as it is.
    """
    change, order, *draws = _draws(seed, document, epoch)
    if not len(ids) or change >= fim.rate * RANGE:
        return None
    low, high = sorted(draw * (len(ids) + 1) // RANGE for draw in draws)
    p, m, s = ids[:low], ids[low:high], ids[high:]
    if order < fim.spm_rate * RANGE:
        return _join([fim.prefix, fim.suffix], s, [fim.middle], p, m)
    return _join([fim.prefix], p, [fim.suffix], s, [fim.middle], m)


def _draws(seed: int, document: str, epoch: int) -> list[int]:
    digest = hashlib.sha256(f"fim/{seed}/{document}/{epoch}".encode()).digest()
    return [int.from_bytes(digest[i : i + 8], "little") for i in range(0, 32, 8)]


def _join(*parts: npt.ArrayLike) -> Ids:
    return np.concatenate([np.asarray(part, dtype=np.uint32) for part in parts])


def restore(ids: Ids, fim: FimIds) -> Ids:
    """Return a document's own tokens from the whole result of ``fill_in_the_middle``, or ``ids`` when it is none.

    ids: without the end token. Text yields no special token, so the first of each marks the cuts. Raises DataError
    for a document of which a part is missing.
    """
    if not len(ids) or ids[0] != fim.prefix:
        return ids
    suffix, middle = _place(ids, fim.suffix), _place(ids, fim.middle)
    return _join(ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle])


def _place(ids: Ids, token: int) -> int:
    found = np.flatnonzero(ids == token)
    if not len(found):
        raise DataError(
            f"fim: {len(ids)} tokens without token {token}; expected a whole document: join its spans first"
        )
    return int(found[0])
