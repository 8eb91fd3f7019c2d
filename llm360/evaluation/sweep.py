"""One task over many checkpoints: a file of rows for each, skipped when the same evaluation has finished it."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from llm360.errors import ConfigError, did_you_mean
from llm360.evaluation.benchmarks import BenchmarkParams
from llm360.evaluation.harness import Benchmark, Score, TaskParams
from llm360.files import MANIFEST, remove_partial, write_bytes, write_manifest
from llm360.progress import say, track

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FORMAT = "llm360-evaluation/1"
SUBJECT = {"suite": pl.String, "ckpt": pl.Int64, "tokens_seen": pl.Int64, "manifest_sha256": pl.String}
TYPES = {"str": pl.String, "int": pl.Int64, "int | None": pl.Int64, "float": pl.Float64, "float | None": pl.Float64}
SCHEMA: dict[str, Any] = SUBJECT | {f.name: TYPES[str(f.type)] for f in dataclasses.fields(Score)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationParams:
    """The evaluation section: which data, which checkpoints of which suites, which tasks."""

    benchmarks: BenchmarkParams
    seed: int
    batch_size: int
    checkpoints: dict[str, list[int]]
    tasks: dict[str, TaskParams]

    def benchmark(self, task: str, *, benchmarks: Path) -> Benchmark:
        """Make one of the section's tasks ready; raises ConfigError for a task that it does not name."""
        if task not in self.tasks:
            raise ConfigError(f"evaluation.tasks: no {task!r}; {did_you_mean(task, self.tasks)}")
        params = self.tasks[task]
        return Benchmark(task=task, params=params, seed=self.seed, batch_size=self.batch_size, benchmarks=benchmarks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A checkpoint to evaluate; ``load`` brings its model and tokenizer."""

    suite: str
    ckpt: int
    tokens_seen: int
    manifest_sha256: str
    load: Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerFast]]

    @property
    def path(self) -> str:
        """Its file of rows."""
        return f"{self.suite}/ckpt_{self.ckpt:03d}.parquet"

    def key(self) -> dict[str, Any]:
        """Return the columns that say which checkpoint a row is about."""
        return {name: getattr(self, name) for name in SUBJECT}


def sweep(folder: Path, subjects: Sequence[Subject], benchmark: Benchmark) -> None:
    """Fill ``folder`` with ``<suite>/ckpt_<iii>.parquet`` and its manifest, last.

    Each file appears whole. A file made from other weights, data or settings is made anew, and one of a checkpoint
    that is not asked for goes.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    _remove_others(folder, {s.path for s in subjects})
    todo = [s for s in subjects if not _finished(folder / s.path, {**s.key(), **benchmark.key()})]
    done = len(subjects) - len(todo)
    for subject in track(todo, label=f"evaluating {benchmark.task}", total=len(subjects), done=done):
        scores = benchmark.run(*subject.load())
        write_bytes(folder / subject.path, _parquet(frame(subject, scores)))
    files = sorted(s.path for s in subjects)
    write_manifest(folder, {"format": FORMAT, "task": benchmark.task, **benchmark.key(), "evaluated": files})


def frame(subject: Subject, scores: Sequence[Score]) -> pl.DataFrame:
    """Return a checkpoint's scores, one row each, with the columns of SCHEMA."""
    return pl.DataFrame([{**subject.key(), **dataclasses.asdict(s)} for s in scores], schema=SCHEMA)


def read(folder: Path) -> pl.DataFrame:
    """Return all rows of an evaluation folder, sorted by suite, checkpoint, task and metric."""
    frames = [pl.read_parquet(path) for path in _files(folder)]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *frames]).sort("suite", "ckpt", "task", "metric")


def _parquet(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _finished(path: Path, key: Mapping[str, Any]) -> bool:
    if not path.is_file():
        return False
    try:
        rows = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        say(f"{path}: cannot be read as a file of rows; evaluating again")
        return False
    if rows.schema != pl.Schema(SCHEMA):
        return False
    own = rows.filter(pl.col("task") == key["task"])  # not the subjects below a group
    return not own.is_empty() and all({name: row[name] for name in key} == key for row in own.to_dicts())


def _remove_others(folder: Path, wanted: set[str]) -> None:
    for path in _files(folder):
        remove_partial(path.parent)
        if path.relative_to(folder).as_posix() not in wanted:
            say(f"{path}: of a checkpoint that is not evaluated any more; removed")
            path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*/ckpt_*.parquet"))
