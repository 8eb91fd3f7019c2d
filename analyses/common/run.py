"""How an analysis is run: rows source by source, kept while what made them is the same, then all that follows."""

from __future__ import annotations

import dataclasses
import importlib
import io
import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl

import analyses
import registry
from analyses.common.plot import style, svg
from analyses.common.sources import readers
from llm360.config import fingerprint
from llm360.errors import ConfigError, DataError, did_you_mean
from llm360.files import MANIFEST, manifest_sha256, write_bytes, write_json, write_manifest
from llm360.progress import track

Row = dict[str, Any]
ROWS, FIGURES = "rows", "figures"
PLOTS = "plots"  # the tables again, a file per suite: DVC draws a file as one line
KEY = "llm360.key"  # where a rows file says what it was made from
PARTS = ("CAPTIONS", "Params", "rows", "summary", "plots", "figures")
DIGITS = 6  # of a float in summaries and tables: sums over threads differ beyond them


class Analysis(Protocol):
    """What a file of ``analyses/`` holds; the package's docstring says what each part is."""

    CAPTIONS: Mapping[str, str]
    Params: type[Any]

    def rows(self, source: Any, params: Any) -> list[Row]: ...  # noqa: D102
    def summary(self, frame: pl.DataFrame) -> Mapping[str, float]: ...  # noqa: D102
    def plots(self, frame: pl.DataFrame) -> Mapping[str, pl.DataFrame]: ...  # noqa: D102
    def figures(self, frame: pl.DataFrame, params: Any) -> Mapping[str, Any]: ...  # noqa: D102


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """One source and the file of its rows; key is None where reading the source is all the work, so nothing is kept."""

    path: str
    source: Any
    key: str | None


def names() -> list[str]:
    """Return the names of all analyses, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(analyses.__path__) if not m.ispkg)


def load(name: str) -> Analysis:
    """Import one analysis; raises ConfigError with the nearest names."""
    if name not in names():
        raise ConfigError(f"analyses: no analysis {name!r}; {did_you_mean(name, names())}")
    module = importlib.import_module(f"analyses.{name}")
    if missing := [part for part in PARTS if not hasattr(module, part)]:
        raise ConfigError(f"analyses/{name}.py: no {', '.join(missing)}; see the docstring of analyses/__init__.py")
    return cast(Analysis, module)


def run(analysis: Analysis, params: Any, folder: Path, *, name: str, recipe: Mapping[str, Any]) -> None:
    """Bring ``folder`` up to date: rows/, summary.json, *.csv, plots/, figures/, and manifest.json last.

    ``recipe`` is what rows depend on beside their source; rows made by another are made again.
    Raises DataError when there are no rows.
    """
    todo = units(params, recipe)
    (folder / MANIFEST).unlink(missing_ok=True)
    _remove_others(folder, {u.path for u in todo})
    for unit in track(todo, label=f"analyze {name}", total=len(todo)):
        if unit.key is None or _key(folder / unit.path) != unit.key:
            _write_rows(folder / unit.path, analysis.rows(unit.source, params), unit.key)
    tables = [pl.read_parquet(folder / u.path) for u in todo]
    if not tables or all(t.is_empty() for t in tables):
        raise DataError(f"{name}: no rows; expected at least one source: name one in analyses.{name} of the parameters")
    _write_results(analysis, pl.concat(tables, how="diagonal_relaxed"), params, folder)
    write_manifest(folder, {"analysis": name, "recipe": dict(recipe)})


def units(params: Any, recipe: Mapping[str, Any]) -> list[Unit]:
    """Return what is to be read, in order: a unit per checkpoint, or per suite."""
    if hasattr(params, "suites"):
        return [Unit(path=f"{ROWS}/{s}.parquet", source=registry.suite(s), key=None) for s in params.suites]
    return [unit for suite, ckpts in params.checkpoints.items() for unit in _checkpoints(suite, ckpts, recipe)]


def _checkpoints(suite: str, ckpts: Sequence[int], recipe: Mapping[str, Any]) -> Iterator[Unit]:
    chunks = [manifest_sha256(reader.folder) for reader in readers(registry.suite(suite))]
    for ckpt in sorted(set(ckpts)):
        source = registry.checkpoint(suite, ckpt=ckpt)
        made_from = {**recipe, "checkpoint": manifest_sha256(source.path), "chunks": chunks}
        yield Unit(path=f"{ROWS}/{suite}/ckpt_{ckpt:03d}.parquet", source=source, key=fingerprint(made_from))


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Remove what an earlier run left and this one does not make, so that the bytes do not tell of it."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()


def _key(path: Path) -> str | None:
    return pl.read_parquet_metadata(path).get(KEY) if path.is_file() else None


def _write_rows(path: Path, rows: list[Row], key: str | None) -> None:
    buffer = io.BytesIO()
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame.write_parquet(buffer, compression="zstd", metadata={KEY: key} if key else None)
    write_bytes(path, buffer.getvalue())


def _write_results(analysis: Analysis, frame: pl.DataFrame, params: Any, folder: Path) -> None:
    summary = dict(analysis.summary(frame))
    if odd := [key for key, value in summary.items() if not math.isfinite(value)]:
        raise DataError(
            f"{folder}: {odd[0]} is {summary[odd[0]]}, expected a finite number; leave out what is undefined"
        )
    write_json(folder / "summary.json", {key: _rounded(value) for key, value in summary.items()})
    for name, table in analysis.plots(frame).items():
        rounded = table.with_columns(pl.selectors.float().round_sig_figs(DIGITS))
        write_bytes(folder / f"{name}.csv", rounded.write_csv().encode())
        for (suite,), part in rounded.group_by("suite", maintain_order=True):
            write_bytes(folder / PLOTS / name / f"{suite}.csv", part.write_csv().encode())
    with style():
        for name, figure in analysis.figures(frame, params).items():
            write_bytes(folder / FIGURES / f"{name}.svg", svg(figure))


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
