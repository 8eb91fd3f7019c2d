"""Memorization: how much of a training row a checkpoint reproduces from its first k tokens (paper 4.3, figures 7 to 9).

score(k, l) is the share of the l next tokens that greedy generation gets right, from 0 to 1; a row is extracted when
all are. The same rows, named by chunk and row, are asked of every checkpoint, also those of chunks not seen yet.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analyses.common.plot import MUTED, PAPER, colour, figure, log_axis, shades
from analyses.common.sources import pretrained, readers
from analyses.common.statistics import correlations, means
from llm360.data.chunks import ChunkReader
from llm360.data.order import permutation
from llm360.errors import DataError
from llm360.files import manifest_sha256
from registry import Checkpoint

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel

# Tensor names: B rows of a batch, K prompt tokens, L continuation tokens.
GROUPS = 10  # chunk groups of figure 8
LINES = 5  # checkpoints drawn in it
CAPTIONS = {
    "distribution": "How the memorization score is distributed over rows of chunks already seen, at each checkpoint; "
    "a row is extracted when the whole continuation is reproduced. The same rows are asked of every checkpoint.",
    "groups": "Mean score by where in training a row's chunk stands, with one standard error. The dot is the latest "
    "group of which a checkpoint saw a chunk, so it may be seen in part; right of it is data it never saw.",
    "correlations": "Do the same rows stay memorized? Pearson's correlation between checkpoints over the rows that "
    "both have seen. Blank where it is not defined, because no row differs from another.",
}
CELL_INK = "#20242b"  # on a coloured cell, on light and dark pages alike


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """k prompt and l continuation tokens; rows_per_chunk rows of every chunk_every-th chunk; batch_size in rows."""

    k: int
    l: int  # noqa: E741 - the paper's name
    rows_per_chunk: int
    chunk_every: int
    seed: int
    batch_size: int
    checkpoints: dict[str, list[int]]


def rows(checkpoint: Checkpoint, params: Params) -> list[dict[str, Any]]:
    """Return a row per sampled row: suite, ckpt, tokens_seen, chunk, row, kind, seen, score, extracted."""
    asked = sample(checkpoint, params)
    hits = matches(checkpoint.model(), asked["tokens"].to_numpy(), k=params.k, batch_size=params.batch_size)
    seen = set(checkpoint.chunks_seen())
    key = {"suite": checkpoint.suite, "ckpt": checkpoint.ckpt, "tokens_seen": checkpoint.tokens_seen}
    return [
        {**key, **row, "seen": row["chunk"] in seen, "score": float(hit.mean()), "extracted": bool(hit.all())}
        for row, hit in zip(asked.drop("tokens").iter_rows(named=True), hits, strict=True)
    ]


def sample(checkpoint: Checkpoint, params: Params) -> pl.DataFrame:
    """Return the rows asked of every checkpoint of a suite: chunk, row, kind, and the first k + l tokens."""
    folders = tuple((r.folder, manifest_sha256(r.folder)) for r in readers(checkpoint.facts))
    suite = pretrained(checkpoint.facts).name
    return _sample(folders, suite, params.k + params.l, params.rows_per_chunk, params.chunk_every, params.seed)


@functools.lru_cache(maxsize=1)
def _sample(
    folders: tuple[tuple[Path, str], ...], suite: str, width: int, count: int, every: int, seed: int
) -> pl.DataFrame:
    """Read the sample once for all checkpoints; the manifests' hashes are in the key, so it is never a stale one."""
    tables = []
    for reader in (ChunkReader(folder) for folder, _ in folders):
        first, last = reader.manifest["first_chunk"], reader.manifest["first_chunk"] + reader.manifest["chunks"]
        for chunk in (c for c in range(first, last) if c % every == 0):
            tables.append(_of_chunk(reader, suite, chunk, width, count, seed))
    return pl.concat(tables)


def _of_chunk(reader: ChunkReader, suite: str, chunk: int, width: int, count: int, seed: int) -> pl.DataFrame:
    tokens = reader.tokens(chunk)
    if tokens.shape[1] < width or len(tokens) < count:
        raise DataError(
            f"{suite}, chunk {chunk}: {len(tokens)} rows of {tokens.shape[1]} tokens, expected at least {count} of "
            f"{width}; lower k, l or rows_per_chunk of analyses.memorization"
        )
    picked = np.sort(permutation(len(tokens), "memorization", seed, suite, chunk)[:count])
    named = reader.provenance(chunk)[picked].select(chunk=pl.lit(chunk), row=pl.Series(picked), kind="kind")
    return named.with_columns(tokens=pl.Series(tokens[picked, :width].astype(np.int64)))


def matches(model: PreTrainedModel, tokens: np.ndarray[Any, Any], *, k: int, batch_size: int) -> np.ndarray[Any, Any]:
    """Return which continuation tokens greedy generation reproduces: bool [rows, l] for tokens [rows, k + l]."""
    import torch

    found = []
    for batch in (torch.from_numpy(tokens[i : i + batch_size]) for i in range(0, len(tokens), batch_size)):
        found.append((continuation(model, batch[:, :k], length=batch.shape[1] - k) == batch[:, k:]).numpy())
    return np.concatenate(found)


def continuation(model: PreTrainedModel, prompts_BK: torch.Tensor, *, length: int) -> torch.Tensor:
    """Return the ``length`` greedy next tokens of each prompt, int64 [B, length]; an end token does not stop it."""
    import torch
    from transformers import StaticCache  # a growing one spends half of the time on copies (measured)

    cache = StaticCache(config=model.config, max_cache_len=prompts_BK.shape[1] + length)
    tokens_B1, generated = prompts_BK, []
    with torch.inference_mode():
        for _ in range(length):
            out: Any = model(input_ids=tokens_B1, cache=cache, use_cache=True, logits_to_keep=1)
            tokens_B1 = out.logits[:, -1].argmax(dim=-1, keepdim=True)
            generated.append(tokens_B1)
    return torch.cat(generated, dim=1)


def by_checkpoint(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows, mean score and extracted share per suite, checkpoint and seen."""
    return means(frame, "suite", "ckpt", "tokens_seen", "seen")


def by_group(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the same per group of neighbouring chunks; seen is the share of its rows that were seen."""
    suites = []
    for (_,), part in frame.group_by("suite", maintain_order=True):
        chunks = part["chunk"].unique().sort()
        size = -(-(int(chunks.max()) + 1) // GROUPS)  # type: ignore[arg-type]
        suites.append(part.with_columns(group=pl.col("chunk") // size, first=pl.col("chunk") // size * size, size=size))
    grouped = pl.concat(suites).with_columns(last=pl.col("first") + pl.col("size") - 1)
    return means(grouped, "suite", "ckpt", "group", "first", "last")


def histogram(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the share of seen rows at each score, per suite and checkpoint."""
    counted = frame.filter("seen").group_by("suite", "ckpt", "score").agg(rows=pl.len())
    return counted.with_columns(share=pl.col("rows") / pl.col("rows").sum().over("suite", "ckpt")).sort(
        "suite", "ckpt", "score"
    )


def summary(frame: pl.DataFrame) -> dict[str, float]:
    """Return, per suite: score and extracted share of seen rows at the first and last checkpoint, of unseen rows, r."""
    numbers: dict[str, float] = {}
    table = by_checkpoint(frame)
    for (suite,), part in table.group_by("suite", maintain_order=True):
        for seen, word in ((True, "seen"), (False, "unseen")):
            chosen = part.filter(pl.col("seen") == seen).sort("ckpt")
            for place in (0, -1) if len(chosen) else ():
                row = chosen.row(place, named=True)
                where = f"{suite}/ckpt_{row['ckpt']:03d}/{word}"
                numbers |= {f"{where}/{name}": row[name] for name in ("rows", "score", "extracted")}
    for column in ("score", "extracted"):
        for (suite,), part in correlations(frame, column).group_by("suite", maintain_order=True):
            apart = part.filter(pl.col("a") < pl.col("b"))["correlation"]
            numbers[f"{suite}/correlation/{column}/undefined"] = apart.null_count()
            if apart.null_count() < len(apart):
                numbers[f"{suite}/correlation/{column}/mean"] = float(apart.drop_nulls().mean())  # type: ignore[arg-type]
    return numbers


def plots(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the tables behind the figures."""
    both = [correlations(frame, c).with_columns(of=pl.lit(c)) for c in ("score", "extracted")]
    return {
        "memorization": by_checkpoint(frame),
        "distribution": histogram(frame),
        "groups": by_group(frame),
        "correlations": pl.concat(both),
    }


def figures(frame: pl.DataFrame, params: Params) -> dict[str, Figure]:
    """Return figures 7, 8 and 9 for each suite."""
    found: dict[str, Figure] = {}
    for (suite,), part in frame.group_by("suite", maintain_order=True):
        found[f"distribution-{suite}"] = _distribution(str(suite), part, params)
        found[f"groups-{suite}"] = _groups(str(suite), part)
        found[f"correlations-{suite}"] = _correlations(str(suite), part)
    return found


def _distribution(suite: str, frame: pl.DataFrame, params: Params) -> Figure:
    ckpts = frame["ckpt"].unique().sort().to_list()
    columns = min(5, len(ckpts))
    lines = -(-len(ckpts) // columns)
    fig, axes = figure(lines, columns, width=1.75 * columns + 0.6, height=1.75 * lines + 0.5, sharex=True, sharey=True)
    for place, ckpt in zip(axes, ckpts, strict=False):
        _one_distribution(place, frame.filter(pl.col("ckpt") == ckpt, "seen"), ckpt, suite, params.l)
    for place in axes[len(ckpts) :]:
        place.set_visible(False)
    fig.supxlabel(f"memorization score (share of {params.l} tokens reproduced)", fontsize=9)
    fig.supylabel("share of rows", fontsize=9)
    return fig


def _one_distribution(axes: Axes, seen: pl.DataFrame, ckpt: int, suite: str, length: int) -> None:
    edges = [(i - 0.5) / length for i in range(length + 2)]
    weights = np.full(len(seen), 1 / max(len(seen), 1))
    axes.hist(seen["score"].to_numpy(), bins=edges, weights=weights, color=colour(suite), linewidth=0)
    log_axis(axes)
    axes.set(xlim=(-0.02, 1.03), title=f"ckpt {ckpt}")
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    note = f"extracted\n{int(seen['extracted'].sum())} of {len(seen)}"
    axes.text(0.97, 0.95, note, transform=axes.transAxes, ha="right", va="top", fontsize=8)


def _groups(suite: str, frame: pl.DataFrame) -> Figure:
    table = by_group(frame)
    ckpts = frame["ckpt"].unique().sort().to_list()
    drawn = [ckpts[i] for i in sorted({round(j) for j in np.linspace(0, len(ckpts) - 1, min(LINES, len(ckpts)))})]
    fig, (axes,) = figure(1, 1, width=6.6, height=3.5)
    for ckpt, shade in zip(drawn, shades(suite, len(drawn)), strict=True):
        part = table.filter(pl.col("ckpt") == ckpt).sort("group")
        x, y = part["group"].to_numpy(), part["score"].to_numpy()
        error = part["stderr"].fill_null(0).to_numpy()
        axes.fill_between(x, y - error, y + error, color=shade, alpha=0.15, linewidth=0)
        axes.plot(x, y, color=shade, label=f"ckpt {ckpt}")
        latest = part.filter(pl.col("seen") > 0)[-1]
        axes.plot(latest["group"], latest["score"], "o", color=shade, markersize=7, markeredgecolor=PAPER)
    first = table.unique("group").sort("group")
    spans = first.select("first", "last").rows()
    axes.set_xticks(first["group"].to_list(), [f"{a}–{b}" if a < b else str(a) for a, b in spans])
    axes.tick_params(axis="x", labelrotation=30 if any(a < b for a, b in spans) else 0)
    axes.set(xlabel="chunks in training order (a dot: the latest group seen, if only in part)", ylabel="mean score")
    fig.legend(loc="outside right upper")
    return fig


def _correlations(suite: str, frame: pl.DataFrame) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap

    paint = LinearSegmentedColormap.from_list("r", ["#eef0f3", colour(suite)])
    ckpts = sorted(frame["ckpt"].unique().to_list())
    side = max(0.36 * len(ckpts), 1.6)
    fig, axes = figure(1, 2, width=2 * side + 1.4, height=side + 1.0)
    for place, (column, title) in zip(axes, (("score", "token score"), ("extracted", "exact extraction")), strict=True):
        values = correlations(frame, column)["correlation"].to_numpy().astype(float).reshape(len(ckpts), len(ckpts))
        place.pcolormesh(np.ma.masked_invalid(values), cmap=paint, vmin=0, vmax=1, edgecolors=PAPER, linewidth=1)
        _write_cells(place, values, ckpts)
        place.set_title(f"{title}, correlation")
    return fig


def _write_cells(axes: Axes, values: np.ndarray[Any, Any], ckpts: list[int]) -> None:
    for (a, b), value in np.ndenumerate(values):
        text = f"{value:.2f}" if np.isfinite(value) else ""
        axes.text(b + 0.5, a + 0.5, text, ha="center", va="center", fontsize=6.5, color=CELL_INK)
    if not np.isfinite(values).any():
        middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "not defined:\nno row differs\nfrom another", color=MUTED, **middle)
    middles = np.arange(len(ckpts)) + 0.5
    axes.set_xticks(middles, map(str, ckpts), rotation=90)
    axes.set_yticks(middles, map(str, ckpts))
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()
    axes.set(xlabel="ckpt", ylabel="ckpt", aspect="equal")
