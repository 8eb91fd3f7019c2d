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


def read_metrics(suite: Suite, *, ckpt: int | None) -> pl.DataFrame:
    """Return the log of all chunks that are here, or of exactly those up to ``ckpt``.

    Columns suite, phase, chunk, step, phase_step, tokens_seen, loss, grad_norm, learning_rate.
    Raises StoreUnavailable naming the first file that is needed and not here, IntegrityError naming an altered one.
    """
    import polars as pl

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
    _verify(suite, here)
    return pl.concat([_read(path) for path in here.values()], how="diagonal_relaxed")


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
