"""Training logs of a workspace as one frame: a row per optimizer step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import verify_file
from llm360.progress import say
from registry.ids import ArtifactId, Kind
from registry.logs import hashes, log_entries, record
from registry.suite import Suite
from registry.workspace import current_workspace

if TYPE_CHECKING:
    import polars as pl


NUMBERS = ("loss", "grad_norm", "learning_rate", "grad_square", "grad_variance", "noise_scale")
SPEEDS, BYTES = ("seconds", "tokens_per_second", "mfu"), ("host_bytes", "device_bytes")


def read_metrics(suite: Suite, *, ckpt: int | None, timings: bool = False) -> pl.DataFrame:
    """Return the log of all checkpoints that are here, or of exactly those up to ``ckpt``: a row per optimizer step.

    Columns suite, phase, chunk (that the step read), ckpt (that it led to; another number from the first deferred chunk
    on), step, phase_step, tokens_seen, loss, grad_norm, learning_rate, and where the log has them grad_square,
    grad_variance, noise_scale; what was not finite is null. timings: also seconds, tokens_per_second, mfu, host_bytes,
    device_bytes, null where they are not here; of all columns only these differ between two runs of the same recipe.
    Raises StoreUnavailable naming the first file that is needed and not here, IntegrityError naming an altered one.
    """
    here = _here(suite, ckpt)
    _verify(suite, here)
    log = _frame(here)
    return log.join(_clock(suite, here), on=["ckpt", "step"], how="left", maintain_order="left") if timings else log


def _here(suite: Suite, ckpt: int | None) -> dict[int, Path]:
    """Return the files that are here by checkpoint; raises StoreUnavailable when one that is needed is not."""
    first, last = suite.phases[0].first, suite.last if ckpt is None else ckpt
    suite.require(ArtifactId(suite=suite.name, kind=Kind.LOG, index=last))
    paths = {i: _path(suite, i) for i in range(first, last + 1)}
    here = {i: path for i, path in paths.items() if path.is_file()}
    absent = [i for i in paths if i not in here]
    if absent and (ckpt is not None or not here):
        raise StoreUnavailable(
            f"{suite.name}/log-{absent[0]} is not in this workspace ({paths[absent[0]]}): {len(absent)} of "
            f"{len(paths)} are not; `dvc pull artifacts/metrics/{suite.name}` brings them, `make repro` builds them"
        )
    if absent:
        say(f"{suite.name}: {len(absent)} of {len(paths)} metric files are not in this workspace and are left out")
    return here


def _frame(files: Mapping[int, Path]) -> pl.DataFrame:
    """Return the lines of all files with the checkpoint that each led to; a column of nulls has a type too."""
    import polars as pl

    parts = [_read(path).with_columns(pl.lit(ckpt, pl.Int64).alias("ckpt")) for ckpt, path in files.items()]
    frame = pl.concat(parts, how="diagonal_relaxed")
    types = dict.fromkeys(NUMBERS + SPEEDS, pl.Float64) | dict.fromkeys(BYTES, pl.Int64)
    return frame.cast({name: kind for name, kind in types.items() if name in frame.columns})


def _clock(suite: Suite, logs: Mapping[int, Path]) -> pl.DataFrame:
    """Return what a clock said of the steps of these logs, as far as it is here; no hash of it is kept anywhere."""
    import polars as pl

    timings = current_workspace().artifacts / "timings"
    paths = {ckpt: timings / suite.folder(ckpt) / log.name for ckpt, log in logs.items()}
    here = {ckpt: path for ckpt, path in paths.items() if path.is_file()}
    if absent := len(paths) - len(here):
        say(f"{suite.name}: {absent} of {len(paths)} timings are not in this workspace: their rows are null")
    schema = dict.fromkeys(("ckpt", "step", *BYTES), pl.Int64) | dict.fromkeys(SPEEDS, pl.Float64)
    parts = [pl.DataFrame(schema=schema), *([_frame(here)] if here else [])]
    return pl.concat(parts, how="diagonal_relaxed").select("ckpt", "step", *SPEEDS, *BYTES)


def _verify(suite: Suite, here: Mapping[int, Path]) -> None:
    """Check each log against its recorded sha256; those without one are counted aloud."""
    artifacts, unchecked = current_workspace().artifacts, 0
    for phase in suite.phases:
        known = hashes(record(artifacts, suite, phase.first))
        for path in (path for i, path in here.items() if i in phase):
            entries = log_entries(path, known)
            unchecked += not entries
            for entry in entries:
                verify_file(path, entry)
    if unchecked:
        say(f"{suite.name}: {unchecked} of {len(here)} metric files were NOT checked: no ledger names their sha256")


def _path(suite: Suite, index: int) -> Path:
    folder, (name,) = current_workspace().place(suite, ArtifactId(suite=suite.name, kind=Kind.LOG, index=index))
    return folder / name


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_ndjson(path, infer_schema_length=None)  # every line: a later one may have more fields
    except pl.exceptions.PolarsError as error:
        raise IntegrityError(f"{path}: not one JSON object a line ({error}); pull or rebuild it") from error
