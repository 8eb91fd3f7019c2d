"""The bridge to lm-eval: its bundled tasks on a mirror of their data, for one model after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import logging
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import ConfigError, DataError, LLM360Error, did_you_mean
from llm360.files import manifest_sha256, verify

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from llm360.evaluation.adapters import Ids, MirrorTask, Pair, WindowLM


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundled:
    """A task that lm-eval ships: its folder below ``lm_eval/tasks``, the metrics kept, a column that must be filled."""

    folder: str
    metrics: tuple[str, ...]
    needs: str = "question"


TASKS = {
    "arc_challenge": Bundled(folder="arc", metrics=("acc", "acc_norm")),
    "hellaswag": Bundled(folder="hellaswag", metrics=("acc", "acc_norm"), needs="endings"),
    "mmlu": Bundled(folder="mmlu/default", metrics=("acc",)),
    "truthfulqa_mc1": Bundled(folder="truthfulqa", metrics=("acc",), needs="mc1_targets"),
    "truthfulqa_mc2": Bundled(folder="truthfulqa", metrics=("acc",), needs="mc2_targets"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskParams:
    """shots: examples before each question. limit: questions per task (per subject for mmlu), None for all."""

    shots: int
    limit: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of one task for one model.

    limit is the asked one, samples the questions answered, requests the likelihoods they took, truncated those
    whose context was longer than max_length tokens and lost its left end. stderr is None where one sample is
    too few. benchmark says where the data came from: packages, synthetic (made up) or hub.
    """

    task: str
    task_version: str
    shots: int
    limit: int | None
    metric: str
    value: float
    stderr: float | None
    samples: int
    requests: int
    truncated: int
    max_length: int
    seed: int
    batch_size: int
    harness_version: str
    benchmark: str
    benchmark_sha256: str


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    task: str,
    params: TaskParams,
    seed: int,
    batch_size: int,
    benchmarks: Path,
) -> list[Score]:
    """Return a model's scores on one task; for several models, keep a ``Benchmark``."""
    bench = Benchmark(task=task, params=params, seed=seed, batch_size=batch_size, benchmarks=benchmarks)
    return bench.run(model, tokenizer)


class Benchmark:
    """A task ready to run: documents and prompts are made once, tokens once per tokenizer and window.

    Raises ConfigError for an unknown task or impossible shots, DataError when the data does not carry the task.
    """

    def __init__(self, *, task: str, params: TaskParams, seed: int, batch_size: int, benchmarks: Path) -> None:
        if task not in TASKS:
            raise ConfigError(f"evaluation task {task!r} is unknown; {did_you_mean(task, TASKS)}")
        self.task, self.params, self.seed, self.batch_size = task, params, seed, batch_size
        manifest = verify(benchmarks)
        self.benchmark, self.benchmark_sha256 = str(manifest["benchmark"]), manifest_sha256(benchmarks)
        mirror = None if self.benchmark == "hub" else benchmarks
        with _quiet():
            self._tasks, self._groups = _load(task, params, mirror, seed)
        self._store: dict[str, dict[Pair, Ids]] = {}

    def key(self) -> dict[str, Any]:
        """Return the columns, and their values in the task's own row, that say how scores are made."""
        own = self._groups.get(self.task)
        version = str(self._tasks[self.task].VERSION if own is None else own.version)
        settings = {**dataclasses.asdict(self.params), "seed": self.seed, "batch_size": self.batch_size}
        source = {"benchmark": self.benchmark, "benchmark_sha256": self.benchmark_sha256}
        return {"task": self.task, "task_version": version, **settings, "harness_version": harness_version(), **source}

    def run(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> list[Score]:
        """Return a model's scores, sorted by task and metric."""
        from lm_eval.evaluator import evaluate as lm_evaluate

        from llm360.evaluation.adapters import WindowLM

        with _quiet(), _explained(self.task):
            lm = WindowLM(model, tokenizer, batch_size=self.batch_size, store=self._store)
            loaded = {"tasks": self._tasks, "groups": self._groups}
            results = lm_evaluate(lm, loaded, limit=self.params.limit, log_samples=False)
        leaves = {name: [task] for name, task in self._tasks.items()}
        groups = {name: group.get_all_tasks() for name, group in self._groups.items()}
        scores = [s for n, tasks in {**leaves, **groups}.items() for s in self._scores(n, tasks, results, lm)]
        return sorted(scores, key=lambda s: (s.task, s.metric))

    def _scores(
        self, name: str, tasks: Sequence[MirrorTask], results: Mapping[str, Any], lm: WindowLM
    ) -> Iterator[Score]:
        found = results["results"][name]
        metrics = {m: (found[f"{m},none"], found[f"{m}_stderr,none"]) for m in TASKS[self.task].metrics}
        if name in self._groups:
            metrics["acc_macro"] = _macro([results["results"][t.task_name] for t in tasks])
        instances = [i for t in tasks for i in t.instances]
        for metric, (value, stderr) in metrics.items():
            yield Score(
                **{**self.key(), "task": name, "task_version": str(results["versions"][name])},
                metric=metric,
                value=float(value),
                stderr=None if stderr == "N/A" else float(stderr),
                samples=int(found["sample_len"]),
                requests=len(instances),
                truncated=lm.cut(instances),
                max_length=int(lm.max_length),
            )


def harness_version() -> str:
    """Return the name and version of the harness."""
    return f"lm_eval {importlib.metadata.version('lm_eval')}"


def _macro(found: Sequence[Mapping[str, Any]]) -> tuple[float, float | str]:
    """Return the plain mean over subjects, which Amber's paper reports; lm-eval weighs subjects by their size."""
    errors = [f["acc_stderr,none"] for f in found]
    value = statistics.fmean(f["acc,none"] for f in found)
    return value, "N/A" if "N/A" in errors else math.hypot(*errors) / len(errors)


def _load(
    name: str, params: TaskParams, mirror: Path | None, seed: int
) -> tuple[dict[str, MirrorTask], dict[str, Group]]:
    from llm360.evaluation import adapters

    if params.shots < 0 or (params.limit is not None and params.limit < 1):
        raise ConfigError(f"evaluation task {name}: read {params}, expected shots >= 0 and limit >= 1 or null for all")
    with _explained(name):
        tasks, groups = adapters.load(name, folder=TASKS[name].folder, needs=TASKS[name].needs, mirror=mirror)
    for task in tasks.values():
        _set_shots(task, params.shots, seed)
    return tasks, groups


def _set_shots(task: MirrorTask, shots: int, seed: int) -> None:
    if task.config.num_fewshot == 0 and shots != 0:  # its prompt has its own examples
        raise ConfigError(f"{task.task_name} is a 0-shot task, read {shots} shots; set shots: 0")
    task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(seed)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """lm-eval raises bare ValueError and AssertionError when data does not carry a task."""
    try:
        yield
    except (ValueError, AssertionError, KeyError) as error:
        if isinstance(error, LLM360Error):
            raise
        raise DataError(
            f"{name}: lm-eval could not make the task from this data ({error}); "
            f"it needs more examples than shots, and the Hub's columns: rebuild the benchmarks or lower the shots"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep lm-eval's progress bars and notes off the stage's log; errors are raised, not printed."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
