"""Rows of instruction and preference data: made from a draft and where it comes from."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from llm360.finetune.templates import Draft

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A draft with its template and the document that it comes from."""

    template: str
    draft: Draft
    document: str
    licence: str


def number(seed: int, *parts: str) -> int:
    """Return 64 bits that depend on all parts; the one source of chance here."""
    text = "\0".join([str(seed), *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def sft_row(candidate: Candidate) -> Row:
    """Return a draft as a conversation."""
    draft = candidate.draft
    return {**_lineage(candidate), "messages": [_turn("user", draft.prompt), _turn("assistant", draft.answer)]}


def dpo_row(candidate: Candidate, fault: str, worse: str) -> Row:
    """Return a draft as a pair of its answer and a worse one."""
    row = {**_lineage(candidate), "fault": fault, "prompt": [_turn("user", candidate.draft.prompt)]}
    return row | {"chosen": [_turn("assistant", candidate.draft.answer)], "rejected": [_turn("assistant", worse)]}


def _lineage(candidate: Candidate) -> Row:
    name = number(0, candidate.template, candidate.document, candidate.draft.prompt)
    return {
        "id": f"{candidate.template}-{name:016x}",
        "template": candidate.template,
        "document": candidate.document,
        "licence": candidate.licence,
    }


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def answers(row: Row) -> list[str]:
    """Return all answers of a row of either form, the rejected one too."""
    turns = [turn for key in ("messages", "chosen", "rejected") for turn in row.get(key, ())]
    return [turn["content"] for turn in turns if turn["role"] == "assistant"]
