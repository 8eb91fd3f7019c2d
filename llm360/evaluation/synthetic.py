"""Made-up benchmark tables for smoke runs and tests: the real schemas, no text of the real benchmarks, no network.

Scores on them say that the pipeline runs, nothing about a model; manifests and rows call them "synthetic".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llm360.evaluation.tables import ARC, DEFAULT, HELLASWAG, MMLU, TRUTHFULQA, Table

LETTERS = "ABCD"
ARC_ROWS = {"train": 32, "test": 12}  # 25 shots need 26 rows at least
HELLASWAG_ROWS = {"train": 16, "validation": 12}  # 10 shots need 11 rows at least
MMLU_ROWS = {"dev": 5, "validation": 1, "test": 2}  # 5 shots, the first of dev
TRUTHFULQA_ROWS = {"validation": 12}


def tables(subjects: tuple[str, ...]) -> Iterator[Table]:
    """Yield a handful of sums for every table, MMLU's for each of ``subjects``; the same on every call."""
    for split, count in ARC_ROWS.items():
        yield Table(dataset=ARC, config="ARC-Challenge", split=split, rows=[_arc(i, split) for i in range(count)])
    for split, count in HELLASWAG_ROWS.items():
        yield Table(dataset=HELLASWAG, config=DEFAULT, split=split, rows=[_hellaswag(i, split) for i in range(count)])
    for number, subject in enumerate(subjects):
        for split, count in MMLU_ROWS.items():
            rows = [_mmlu(7 * number + i, split, subject) for i in range(count)]
            yield Table(dataset=MMLU, config=subject, split=split, rows=rows)
    for split, count in TRUTHFULQA_ROWS.items():
        rows = [_truthfulqa(i) for i in range(count)]
        yield Table(dataset=TRUTHFULQA, config="multiple_choice", split=split, rows=rows)


def _sum(i: int, split: str) -> tuple[str, list[str], int]:
    """Return a question, four different choices and the index of the right one."""
    a, b, gold = i + 2, 3 * i % 11 + (40 if split in ("test", "validation") else 1), i % 4
    return f"What is {a} plus {b}?", [str(a + b + k - gold) for k in range(4)], gold


def _arc(i: int, split: str) -> dict[str, Any]:
    question, choices, gold = _sum(i, split)
    options = {"text": choices, "label": list(LETTERS)}
    return {"id": f"synthetic-{split}-{i}", "question": question, "choices": options, "answerKey": LETTERS[gold]}


def _hellaswag(i: int, split: str) -> dict[str, Any]:
    question, choices, gold = _sum(i, split)
    row = {"ind": i, "activity_label": "Adding", "ctx_a": f"A child asks: {question}", "ctx_b": "the teacher"}
    row |= {"ctx": f"A child asks: {question} the teacher", "endings": [f"writes {c}." for c in choices]}
    return {**row, "source_id": "synthetic", "split": split, "split_type": "indomain", "label": str(gold)}


def _mmlu(i: int, split: str, subject: str) -> dict[str, Any]:
    question, choices, gold = _sum(i, split)
    return {"question": question, "subject": subject, "choices": choices, "answer": gold}


def _truthfulqa(i: int) -> dict[str, Any]:
    """The true answer comes first, as in the real table."""
    question, choices, gold = _sum(i, "validation")
    ordered = [choices[gold], *(c for k, c in enumerate(choices) if k != gold)]
    targets = {"choices": [f"It is {c}." for c in ordered], "labels": [1, 0, 0, 0]}
    return {"question": question, "mc1_targets": targets, "mc2_targets": targets}
