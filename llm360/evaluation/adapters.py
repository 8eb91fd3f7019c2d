"""lm-eval's task and model, changed so that what does not depend on the weights is done once.

Importing this module imports lm-eval and torch; only a running evaluation does so.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask
from lm_eval.config.group import AggMetricConfig
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml

from llm360.errors import DataError, TrainingError
from llm360.evaluation import tables
from llm360.files import sha256_bytes

Pair = tuple[str, str]  # context, continuation
Ids = tuple[list[int], list[int], bool]  # of the context, of the continuation; whether the context was cut


class MirrorTask(ConfigurableTask):  # type: ignore[misc]
    """A bundled task that reads a mirror (None: the Hub), and processes documents and builds requests only once."""

    def __init__(self, *, config: dict[str, Any], needs: str, mirror: Path | None) -> None:
        self._mirror = mirror
        self._needs = needs
        self._built = False
        self._processed: dict[str, Any] = {}
        super().__init__(config=config)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Read the dataset from the mirror; called by lm-eval's constructor."""
        if self._mirror is None:
            super().download(dataset_kwargs, **kwargs)
        else:
            self.dataset = tables.read(self._mirror, self.config.dataset_path, self.config.dataset_name)
        for split, rows in self.dataset.items():
            if self._needs not in rows.column_names or None in rows[self._needs]:
                raise DataError(
                    f"{self.config.task} needs the column {self._needs}, which {self.config.dataset_path} ({split}) "
                    f"lacks here; set evaluation.benchmarks.source to hub, or leave the task out"
                )

    def training_docs(self) -> Any:
        """Return the training split, processed once; lm-eval does it again on every call."""
        return self._once("training", super().training_docs)

    def validation_docs(self) -> Any:
        """Return the validation split, processed once."""
        return self._once("validation", super().validation_docs)

    def test_docs(self) -> Any:
        """Return the test split, processed once."""
        return self._once("test", super().test_docs)

    def _once(self, split: str, process: Callable[[], Any]) -> Any:
        if split not in self._processed:
            self._processed[split] = process()
        return self._processed[split]

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build the requests on the first call; afterwards only forget the last model's answers."""
        if not self._built:
            super().build_all_requests(**kwargs)
            self._built = True
        for instance in self.instances:
            instance.resps.clear()  # lm-eval appends and reads the first, which would be the last model's
            instance.filtered_resps.clear()


class WindowLM(HFLM):  # type: ignore[misc]
    """A model that keeps tokens in ``store`` for the next one like it, and says how many contexts were cut.

    A context longer than the model's window loses its left end, as in lm-eval. Text that looks like a special
    token stays text, as in training.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_size: int, store: dict[str, dict[Pair, Ids]]) -> None:
        tokenizer = copy.copy(tokenizer)
        tokenizer.split_special_tokens = True
        super().__init__(pretrained=model, tokenizer=tokenizer, batch_size=batch_size, device=str(model.device))
        vocabulary = sha256_bytes(tokenizer.backend_tokenizer.to_str().encode())
        encode: Any = super().tok_encode
        self.tok_encode = functools.lru_cache(maxsize=2)(encode)  # a question's choices share its context
        self._ids = store.setdefault(f"{vocabulary}/{self.max_length}", {})

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        pair = (context, continuation)
        if pair not in self._ids:
            self._ids[pair] = self._fit(*super()._encode_pair(context, continuation))
        return self._ids[pair][:2]

    def _fit(self, context: list[int], continuation: list[int]) -> Ids:
        room = self.max_length + 1 - len(continuation)  # the last token is predicted, never read
        if room < 1:
            raise DataError(
                f"an answer of {len(continuation)} tokens does not fit the model's window of {self.max_length}; "
                f"leave this task out for this model or give it a longer window"
            )
        return context[-room:], continuation, len(context) > room

    def cut(self, instances: Sequence[Any]) -> int:
        """Return how many of these requests had a context longer than the window."""
        return sum(self._ids[i.args][2] for i in instances if i.args in self._ids)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Return lm-eval's answers; raises TrainingError for one that is not finite, which would score as chance."""
        answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        bad = sum(not math.isfinite(value) for value, _ in answers)
        if bad:
            raise TrainingError(
                f"{bad} of {len(answers)} log-likelihoods are not finite, expected all finite; "
                f"the checkpoint's weights have diverged or are damaged: verify it"
            )
        return answers


def load(name: str, *, folder: str, needs: str, mirror: Path | None) -> tuple[dict[str, MirrorTask], dict[str, Group]]:
    """Return a bundled task by name, or the tasks of a bundled group and that group, without its sub-groups.

    Only ``folder`` below ``lm_eval/tasks`` is indexed: all of them take seven seconds.
    """
    root = Path(lm_eval.tasks.__file__).parent / folder
    index = lm_eval.tasks.TaskManager(include_path=root, include_defaults=False).task_index
    configs = {leaf: _config(index[leaf].yaml_path) for leaf in _leaves(index, name)}
    tasks = {leaf: MirrorTask(config=config, needs=needs, mirror=mirror) for leaf, config in configs.items()}
    config = index[name].cfg
    if "group" not in config:
        return tasks, {}
    metrics = [AggMetricConfig(**m) for m in config["aggregate_metric_list"]]
    group = Group(name=name, aggregate_metric_list=metrics, metadata=config["metadata"])
    for task in tasks.values():
        group.add(task)
    return tasks, {name: group}


def _leaves(index: Mapping[str, Any], name: str) -> list[str]:
    entry = index[name]
    if entry.tags and not entry.yaml_path:  # a tag names its tasks
        return sorted(entry.tags)
    if "group" not in entry.cfg:
        return [name]
    return sorted({leaf for member in entry.cfg["task"] for leaf in _leaves(index, member)})


def _config(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = load_yaml(path, resolve_func=True)
    return {k: v for k, v in config.items() if k not in ("tag", "group")}
