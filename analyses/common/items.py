"""The questions that evaluation asks, as text: what contamination looks for in the training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from llm360.errors import ConfigError, did_you_mean
from llm360.evaluation.benchmarks import SUBJECTS
from llm360.evaluation.tables import ARC, DEFAULT, HELLASWAG, MMLU, TRUTHFULQA, read
from llm360.files import verify

TRUTHFUL = (TRUTHFULQA, ("multiple_choice",), "validation")
TABLES: dict[str, tuple[str, Sequence[str], str]] = {  # dataset, configurations, the split that lm-eval's task asks
    "arc_challenge": (ARC, ("ARC-Challenge",), "test"),
    "hellaswag": (HELLASWAG, (DEFAULT,), "validation"),
    "mmlu": (MMLU, SUBJECTS, "test"),
    "truthfulqa_mc1": TRUTHFUL,
    "truthfulqa_mc2": TRUTHFUL,
}


def benchmark_items(mirror: Path, tasks: Sequence[str]) -> pl.DataFrame:
    """Return every item that the tasks ask: task, item (``configuration/split/number``), text.

    The text is the question and its right answer, as they would stand in a document. Examples in prompts come from
    other splits and are no items. Raises ConfigError for a task whose tables are not known.
    """
    if unknown := [task for task in tasks if task not in TABLES]:
        raise ConfigError(f"analyses.data.tasks: no task {unknown[0]!r}; {did_you_mean(unknown[0], TABLES)}")
    source = verify(mirror)["benchmark"]
    return pl.DataFrame(
        [item for task in tasks for item in _items(mirror, source, task)],
        schema=dict.fromkeys(("task", "item", "text"), pl.String),
    )


def _items(mirror: Path, source: str, task: str) -> Iterator[dict[str, str]]:
    dataset, configs, split = TABLES[task]
    for config in configs:
        for number, row in enumerate(_rows(mirror, source, dataset, config, split)):
            text = f"{row.get('ctx') or row['question']} {_answer(dataset, row)}"
            yield {"task": task, "item": f"{config}/{split}/{number}", "text": text}


def _rows(mirror: Path, source: str, dataset: str, config: str, split: str) -> list[dict[str, Any]]:
    if source == "hub":  # nothing is mirrored
        import datasets

        return list(datasets.load_dataset(dataset, config, split=split))
    return list(read(mirror, dataset, config)[split].to_list())


def _answer(dataset: str, row: Mapping[str, Any]) -> str:
    if dataset == ARC:
        return str(row["choices"]["text"][row["choices"]["label"].index(row["answerKey"])])
    if dataset == HELLASWAG:
        return str(row["endings"][int(row["label"])])
    if dataset == MMLU:
        return str(row["choices"][row["answer"]])
    return str(row["mc1_targets"]["choices"][row["mc1_targets"]["labels"].index(1)])
