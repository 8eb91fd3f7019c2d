"""tokenizer.json read as a byte-level BPE: the bytes of each id, and what in the file would make them untrue."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

Spec = Mapping[str, Any]  # a parsed tokenizer.json

# Fields that must have one of these values; None also stands for a field that is not there.
BYTE_LEVEL: dict[str, tuple[Any, ...]] = {
    "model.type": ("BPE",),
    "model.byte_fallback": (None, False),
    "model.continuing_subword_prefix": (None, ""),
    "model.end_of_word_suffix": (None, ""),
    "normalizer": (None,),
    "pre_tokenizer.type": ("ByteLevel",),
    "pre_tokenizer.add_prefix_space": (False,),
}
PLAIN: dict[str, tuple[Any, ...]] = {
    "pre_tokenizer.use_regex": (None, True),
    "model.ignore_merges": (None, False),
}


@functools.cache
def alphabet() -> dict[str, int]:
    """Return the byte of each of GPT-2's 256 characters: visible Latin-1 is itself, the rest is U+0100 and on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(0x100 + i): b for i, b in enumerate(others)}


def special_tokens(spec: Spec) -> dict[str, int]:
    """Return the id of every token that was added to the vocabulary by name."""
    return {token["content"]: token["id"] for token in spec.get("added_tokens") or ()}


def unknown_token(spec: Spec) -> str | None:
    """Return the token of what the vocabulary lacks: the only special one that text may become."""
    model = spec["model"]
    if model.get("unk_id") is not None:
        return str(model["vocab"][model["unk_id"]][0])
    token: str | None = model.get("unk_token")
    return token


def bytes_by_id(spec: Spec) -> dict[int, bytes]:
    """Return the bytes of every id that text can become; special tokens stand for none and are left out."""
    special = special_tokens(spec)
    latin = str.maketrans({character: chr(byte) for character, byte in alphabet().items()})
    vocabulary = spec["model"]["vocab"].items()
    return {i: token.translate(latin).encode("latin-1") for token, i in vocabulary if token not in special}


def not_byte_level(spec: Spec) -> str | None:
    """Return why the bytes of a text's ids are not always those of the text; None when they are."""
    if reason := _unlike(spec, BYTE_LEVEL):
        return reason
    if by_text := [token["content"] for token in spec.get("added_tokens") or () if not token["special"]]:
        return f"added token {by_text[0]!r} is not special, so it is found in text before the merges"
    tokens = spec["model"]["vocab"].keys() - special_tokens(spec).keys()
    if strange := set("".join(tokens)) - alphabet().keys():
        odd = min(token for token in tokens if strange & set(token))
        return f"token {odd!r} has characters that stand for no byte"
    if missing := sorted(alphabet().keys() - tokens):
        return f"no token for byte {alphabet()[missing[0]]:#04x}"
    ids = [spec["model"]["vocab"][token] for token in tokens] + [*special_tokens(spec).values()]
    return None if len(set(ids)) == len(ids) else "two tokens share an id"


def not_plain(spec: Spec) -> str | None:
    """Return why merging by rank of the concatenation may differ from this BPE's merging by pairs; else None.

    For a tokenizer that is byte-level. That each token's own bytes become that token is left to be tried.
    """
    if reason := _unlike(spec, PLAIN):
        return reason
    model = spec["model"]
    made = [model["vocab"].get(_concatenation(merge)) for merge in model["merges"]]
    for before, after in zip([-1, *made[:-1]], made, strict=True):
        if after is None or after <= before:
            return f"merges are not in the order of their ids (id {after} after {before})"
    if unmade := sorted(bytes_by_id(spec).keys() - set(made) - {model["vocab"][c] for c in alphabet()}):
        return f"id {unmade[0]} is made by no merge"
    if special := sorted(set(made) & set(special_tokens(spec).values())):
        return f"id {special[0]} is a special token and made by a merge"
    return None


def _concatenation(merge: str | list[str]) -> str:
    return merge.replace(" ", "") if isinstance(merge, str) else "".join(merge)


def _unlike(spec: Spec, expected: Mapping[str, tuple[Any, ...]]) -> str | None:
    for path, values in expected.items():
        found: Any = spec
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found not in values:
            return f"{path} is {found if not isinstance(found, Mapping) else found.get('type')!r}"
    return None
