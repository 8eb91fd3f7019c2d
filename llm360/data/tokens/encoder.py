"""Text to ids and back, by the fastest library that is proven to give the ids of the tokenizer.json."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.tokens.byte_level import Spec, bytes_by_id, not_byte_level, special_tokens, unknown_token
from llm360.data.tokens.engines import Encode, Ids, with_tiktoken, with_tokenizers
from llm360.data.tokens.proof import Proof, prove, write_proof, written_proof
from llm360.data.tokens.tokenizer import EOS
from llm360.errors import ConfigError, DataError, FingerprintMismatch, IntegrityError, did_you_mean
from llm360.files import manifest_sha256, sha256_bytes, verify
from llm360.progress import say

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """Encodes documents of any content; a text that spells a special token stays text.

    name: the library and its version. vocab_size: ids, with special and reserved ones. eos: the id of </s>.
    special_tokens: id by name. token_bytes: uint32 [vocab_size], the bytes of text that each id stands for, 0 for
    special tokens; None where ids do not map to bytes (a normalizer, a sentencepiece-like model).
    """

    name: str
    vocab_size: int
    eos: int
    special_tokens: Mapping[str, int]
    token_bytes: npt.NDArray[np.uint32] | None
    _bytes: Mapping[int, bytes] | None
    _never: Mapping[int, str]
    _file: bytes  # tokenizer.json
    _fast: Encode | None

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        """The tokenizer itself, which takes a tenth of a second to make and is needed for few texts."""
        return _made(self._file)

    @functools.cached_property
    def _reference(self) -> Encode:
        return with_tokenizers(self._tokenizer)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, uint32 and read-only, the same ones with either library.

        Raises DataError for a text that is no Unicode text (a lone surrogate), and for one that the tokenizer
        cannot tell from a special token.
        """
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Ids:
        if self._fast:
            try:
                return self._fast([text])[0]
            except ValueError:  # a run of blanks that is too long for tiktoken, or a lone surrogate
                pass
        _require_unicode(text)
        (ids,) = self._reference([text])
        self._require_text(text, ids)
        return ids

    def _require_text(self, text: str, ids: Ids) -> None:
        """Byte-level BPE keeps them apart; another model may have special tokens among those of its text."""
        if bad := self._never.keys() & set(ids.tolist()):
            raise DataError(
                f"text {text[:60]!r} gave the special token {self._never[min(bad)]!r}, expected text to stay text; "
                f"use a tokenizer whose special tokens no text can spell"
            )

    def decode_bytes(self, ids: npt.ArrayLike) -> bytes:
        """Return the bytes of text that ``ids`` stand for, special tokens being none; raises DataError for no id."""
        wanted = np.asarray(ids, dtype=np.int64).tolist()
        if bad := [i for i in wanted if not 0 <= i < self.vocab_size]:
            raise DataError(f"id {bad[0]}: expected 0 to {self.vocab_size - 1}; was it made by another tokenizer?")
        if self._bytes is None:
            return self._tokenizer.decode(wanted, skip_special_tokens=True).encode()
        return b"".join(self._bytes.get(i, b"") for i in wanted)

    def token_id(self, token: str) -> int:
        """Return the id of a special token; raises ConfigError naming the nearest ones when there is none."""
        if token not in self.special_tokens:
            raise ConfigError(
                f"{token!r} is no special token of the tokenizer; {did_you_mean(token, self.special_tokens)}"
            )
        return self.special_tokens[token]


def load_encoder(folder: Path) -> Encoder:
    """Return the encoder of a tokenizer's folder.

    tiktoken where ``encoder.json`` says that it was proven, or where it can be proven now; else the tokenizer's own
    library, with the reason in a line to stderr. Raises IntegrityError when tokenizer.json is missing or not JSON,
    ConfigError when it draws lots (dropout) or has no </s>.
    """
    data, spec = _read(folder)
    sha256 = sha256_bytes(data)
    proof = written_proof(folder, sha256)
    if proof is None:
        proof = prove(_checked(folder, data), spec, sha256=sha256, documents=())
        if proof.reason:
            say(f"{folder}: encoded by the slower tokenizers, not tiktoken: {proof.reason}")
    return _encoder(folder, data, spec, proof)


def cached_encoder(folder: Path) -> Encoder:
    """Return ``load_encoder(folder)``, made once per process as long as tokenizer.json is the same."""
    path = folder / FILE
    return _cached(folder, path.stat().st_mtime_ns if path.is_file() else None)


@functools.lru_cache(maxsize=4)
def _cached(folder: Path, _changed: int | None) -> Encoder:
    return load_encoder(folder)


def encoder_of(chunks: Mapping[str, Any], folder: Path) -> Encoder:
    """Return the encoder that chunks were made with, given their manifest and the tokenizer's folder, which is checked.

    Raises FingerprintMismatch when another tokenizer lies there.
    """
    verify(folder)
    found, wanted = manifest_sha256(folder), chunks["tokenizer_sha256"]
    if found != wanted:
        raise FingerprintMismatch(
            f"{folder}: sha256 of its manifest {found}, but the chunks of {chunks['folder']} were made with {wanted}; "
            f"pull the tokenizer of this run, or rebuild the chunks: dvc repro"
        )
    return load_encoder(folder)


def prove_encoder(folder: Path, *, documents: Iterable[str]) -> Proof:
    """Prove tiktoken on the built-in sample and on ``documents``, write ``encoder.json`` and return what it says."""
    data, spec = _read(folder)
    proof = prove(_checked(folder, data), spec, sha256=sha256_bytes(data), documents=documents)
    write_proof(folder, proof)
    if proof.reason:
        say(f"{folder}: to be encoded by the slower tokenizers, not tiktoken: {proof.reason}")
    return proof


def _read(folder: Path) -> tuple[bytes, Spec]:
    path = folder / FILE
    try:
        data = path.read_bytes()
        spec: dict[str, Any] = json.loads(data)
        dropout = spec["model"].get("dropout")
    except FileNotFoundError as error:
        raise IntegrityError(
            f"{path}: missing, expected a tokenizer there; rebuild it (dvc repro) or pull it"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_tokenizer(path, error) from error
    if dropout:
        raise ConfigError(
            f"{path}: model.dropout {dropout} makes ids a matter of chance, expected null; set it to null"
        )
    return data, spec


def _checked(folder: Path, data: bytes) -> Tokenizer:
    try:
        return _made(data)
    except Exception as error:  # of the Rust library: a plain Exception
        raise _no_tokenizer(folder / FILE, error) from error


def _made(data: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(data)


def _no_tokenizer(path: Path, error: Exception) -> IntegrityError:
    return IntegrityError(f"{path}: not a tokenizer ({error}); delete it and rebuild it: dvc repro")


def _encoder(folder: Path, data: bytes, spec: Spec, proof: Proof) -> Encoder:
    special = special_tokens(spec)
    if EOS not in special:
        raise ConfigError(f"{folder / FILE}: no special token {EOS!r}, which ends a document; add it to the tokenizer")
    by_id = None if not_byte_level(spec) else bytes_by_id(spec)
    size = 1 + max(*special.values(), *_ids(spec))
    proven = proof.library == "tiktoken" and by_id is not None
    return Encoder(
        name=f"{proof.library} {proof.versions[proof.library]}",
        vocab_size=size,
        eos=special[EOS],
        special_tokens=special,
        token_bytes=None if by_id is None else _lengths(by_id, size),
        _bytes=by_id,
        _never={i: token for token, i in special.items() if token != unknown_token(spec)},
        _file=data,
        _fast=with_tiktoken({b: i for i, b in by_id.items()}) if proven and by_id is not None else None,
    )


def _ids(spec: Spec) -> Iterable[int]:
    """Return the ids of the vocabulary: a mapping to ids, or for some models a list of tokens."""
    vocab = spec["model"]["vocab"]
    return vocab.values() if isinstance(vocab, Mapping) else range(len(vocab))


def _lengths(by_id: Mapping[int, bytes], size: int) -> npt.NDArray[np.uint32]:
    return np.array([len(by_id.get(i, b"")) for i in range(size)], dtype=np.uint32)


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"a text has a lone surrogate ({text[error.start]!r} at character {error.start}), expected Unicode text; "
            f"decode its source again"
        ) from error
