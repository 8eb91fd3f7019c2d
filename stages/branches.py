"""Where branches start: ``branch_from: amber-mini@180`` of a pretrain section, as a checkpoint's folder and name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llm360.errors import ConfigError, did_you_mean

Sections = Mapping[str, Mapping[str, Any]]
FORM = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)@(0|[1-9][0-9]*)")


def resolved(pretrain: Sections, chunks: Sections) -> dict[str, dict[str, Any]]:
    """Return the pretrain sections with ``start`` and ``branch`` in place of ``branch_from``; branch is null elsewhere.

    chunks are the sections of the same keys, whose numbers are those of the checkpoints. Raises ConfigError for a suite
    that is not in the configuration, a number that it does not have, and chunks that do not go on from there.
    """
    return {key: _resolved(key, pretrain, chunks) for key in pretrain}


def _resolved(key: str, pretrain: Sections, chunks: Sections) -> dict[str, Any]:
    section, where = pretrain[key], f"conf/: pretrain.{key}"
    text = section.get("branch_from")
    if text is None:
        own = {"branch": section.get("branch")}
        return {name: value for name, value in section.items() if name != "branch_from"} | own
    if "start" in section:
        read = f"read start {section['start']!r} and branch_from {text!r}"
        raise ConfigError(f"{where}: {read}, expected one of them: branch_from alone says where a branch starts")
    suite, ckpt = _point(text, where)
    if suite == section["suite"]:
        raise ConfigError(f"{where}: {suite} cannot branch from itself; a branch is a suite of another name")
    base = _phase(suite, ckpt, where, pretrain, chunks)
    _require_goes_on(key, ckpt, chunks, base)
    own = {"start": f"checkpoints/{pretrain[base]['folder']}/ckpt_{ckpt:03d}", "branch": f"{suite}/ckpt-{ckpt}"}
    return dict(_replaced(section, own))


def _replaced(section: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        yield from own.items() if name == "branch_from" else [(name, value)]


def _point(text: object, where: str) -> tuple[str, int]:
    match = FORM.fullmatch(str(text))
    if match is None:
        raise ConfigError(f"{where}.branch_from: read {text!r}, expected SUITE@CKPT, for example amber-mini@180")
    return match[1], int(match[2])


def _phase(suite: str, ckpt: int, where: str, pretrain: Sections, chunks: Sections) -> str:
    """Return the key of the phase in which a suite saves a checkpoint."""
    if suite not in (suites := {s["suite"] for s in pretrain.values()}):
        hint = did_you_mean(suite, suites)
        raise ConfigError(f"{where}.branch_from: this configuration pretrains no suite {suite!r}; {hint}")
    spans = {key: _span(chunks[key]) for key, s in pretrain.items() if s["suite"] == suite and key in chunks}
    for key, numbers in spans.items():
        if ckpt in numbers:
            return key
    has = f"{min(n.start for n in spans.values())} to {max(n.stop for n in spans.values()) - 1}" if spans else "none"
    raise ConfigError(f"{where}.branch_from: read checkpoint {ckpt} of {suite}, expected one that it saves: {has}")


def _span(chunks: Mapping[str, Any]) -> range:
    return range(chunks["first_chunk"], chunks["first_chunk"] + chunks["chunks"])


def _require_goes_on(key: str, ckpt: int, chunks: Sections, base: str) -> None:
    """Refuse chunks that another tokenizer made, or whose numbers do not follow the checkpoint."""
    if key not in chunks:
        raise ConfigError(f"conf/: pretrain.{key} branches, but there is no chunks.{key}; {did_you_mean(key, chunks)}")
    first, tokenizer, needed = chunks[key]["first_chunk"], chunks[key]["tokenizer"], chunks[base]["tokenizer"]
    if first != ckpt + 1:
        why = f"the branch's numbers go on from checkpoint {ckpt}"
        raise ConfigError(f"conf/: chunks.{key}.first_chunk: read {first}, expected {ckpt + 1}: {why}")
    if tokenizer != needed:
        why = f"the branch goes on with the model of pretrain.{base}, which knows that tokenizer's ids"
        raise ConfigError(f"conf/: chunks.{key}.tokenizer: read {tokenizer!r}, expected {needed!r}: {why}")
