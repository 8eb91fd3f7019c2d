"""Live metrics beside the files, for whoever watches a run: DVCLive, Weights & Biases, Trackio.

A tracker is no part of a run's result. One that cannot be opened or fails is said once and left out; the run goes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from llm360.errors import ConfigError, did_you_mean
from llm360.files import copy_file
from llm360.progress import say

SUMMARY_SECONDS = 10.0  # DVCLive writes a number in 0.06 ms, its summary in 2 ms (measured): not at each step
PROJECT = "llm360"


class Tracker(Protocol):
    """Takes the numbers of each step, counted from 1 over the suite; after a kill some steps come again."""

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Show a step's numbers; those that are null or not finite are left out."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


def open_trackers(names: Sequence[str], *, folder: Path, run: str, config: Mapping[str, Any]) -> list[Tracker]:
    """Return the trackers of those names that can be opened here; each writes into a folder of its own in ``folder``.

    run: the name that a resumed run goes on under; config: plain JSON values, shown beside it.
    Raises ConfigError for a name that is none of ``TRACKERS``.
    """
    require_known(names)
    opened = [_Guarded(name, functools.partial(_open, name, folder / name, run, config)) for name in names]
    return [tracker for tracker in opened if tracker.inner is not None]


def _open(name: str, folder: Path, run: str, config: Mapping[str, Any]) -> Tracker:
    """Open a tracker whose files are its own: DVC may have linked them to its cache, which must not change."""
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        if path.stat().st_nlink > 1 or path.is_symlink():
            copy_file(path, path)
    return TRACKERS[name](folder, run, config)


def require_known(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is none of ``TRACKERS``."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"trackers: unknown name {name!r}; {did_you_mean(name, TRACKERS)}")


class _Guarded:
    """A tracker whose errors are said once and end it, not the run."""

    def __init__(self, name: str, opener: Callable[[], Tracker]) -> None:
        self.name = name
        self.inner: Tracker | None = None
        with self._said():
            self.inner = opener()

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for data
                yield
        except Exception as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == self.name
            words = f"not installed: pip install {self.name}" if missing else str(error) or repr(error)
            say(f"tracker {self.name}: {words}; the run goes on without it")
            self.inner = None

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        known = {k: float(v) for k, v in numbers.items() if v is not None and math.isfinite(v)}
        if self.inner is not None:
            with self._said():
                self.inner.log(step, known)

    def close(self) -> None:
        if self.inner is not None:
            with self._said():
                self.inner.close()


class _DVCLive:
    """TSV files that `dvc plots` and DVC's editor extension read; nothing is sent, no dvc.yaml, no experiment."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("DVC_NO_ANALYTICS", "1")
        os.environ.setdefault("DVC_STUDIO_OFFLINE", "1")
        from dvclive import Live

        self._last = {path.stem: _last_step(path) for path in (folder / "plots" / "metrics").glob("*.tsv")}
        self._live = Live(str(folder), resume=True, report=None, save_dvc_exp=False, dvcyaml=None, exp_name=run)
        self._live.log_params(_without_null(config))
        self._summed = 0.0

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        self._live.step = step
        for name, number in numbers.items():
            if step > self._last.get(name, 0):
                self._live.log_metric(name, number)
        if time.monotonic() - self._summed > SUMMARY_SECONDS:
            self._live.make_summary()
            self._summed = time.monotonic()

    def close(self) -> None:
        self._live.make_summary()  # end() would go back to the step of the last one
        self._live.end()


def _last_step(path: Path) -> int:
    """Return the last step in a file of DVCLive's, whose last line is cut off when a kill left half of it."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    path.write_bytes(whole + b"\n" if whole else b"")
    lines = whole.splitlines()
    return int(lines[-1].split(b"\t")[0]) if len(lines) > 1 else 0


def _without_null(value: Any) -> Any:
    """Return plain JSON without nulls, which DVCLive refuses."""
    if isinstance(value, Mapping):
        return {str(k): _without_null(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_null(v) for v in value if v is not None]
    return value


class _Wandb:
    """A run on the server that `wandb login` named, or in the folder with WANDB_MODE=offline."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        import wandb

        if os.environ.get("WANDB_MODE") != "offline" and not wandb.login(prompt=False):
            raise ConfigError("not configured: run `wandb login`, or set WANDB_API_KEY or WANDB_MODE=offline")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run,
            id=run.replace("/", "-"),
            resume="allow",
            dir=folder,
            config=_plain(config),
            settings=wandb.Settings(console="off"),
        )

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    """A local database in the folder, or in TRACKIO_DIR, or the Space that TRACKIO_SPACE_ID names."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder))
        import trackio

        project, quiet = os.environ.get("TRACKIO_PROJECT", PROJECT), {"auto_log_cpu": False, "auto_log_gpu": False}
        self._run = trackio.init(project=project, name=run, resume="allow", config=_plain(config), embed=False, **quiet)

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _plain(config: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(config))


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = {
    "dvclive": _DVCLive,
    "trackio": _Trackio,
    "wandb": _Wandb,
}
