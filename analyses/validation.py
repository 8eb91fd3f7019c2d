"""Held-out loss: nats per token and perplexity on rows that no phase trains on, by source kind and checkpoint."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analyses.common.plot import INK, KINDS, MUTED, end_labels, figure, phase_lines, tokens_axis
from analyses.common.sources import phase_start, readers
from llm360.data.chunks import ChunkReader
from llm360.errors import DataError
from llm360.train.loop import next_token_loss
from registry import Checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel

ALL = "all"
CAPTIONS = {
    "loss": "Held-out loss in nats per token, by source kind and over all held-out tokens. Every token counts the "
    "same. Dashed: a phase begins."
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """batch_size in rows changes speed and memory, not the result."""

    batch_size: int
    checkpoints: dict[str, list[int]]


def rows(checkpoint: Checkpoint, params: Params) -> list[dict[str, Any]]:
    """Return a row per kind, and one for all tokens: the checkpoint's place, kind, tokens, loss, perplexity."""
    tokens, kinds = held_out(readers(checkpoint.facts))
    losses = token_losses(checkpoint.model(), tokens, batch_size=params.batch_size)
    key = {
        "suite": checkpoint.suite,
        "ckpt": checkpoint.ckpt,
        "phase": checkpoint.phase,
        "phase_start": phase_start(checkpoint.facts, checkpoint.ckpt),
        "tokens_seen": checkpoint.tokens_seen,
    }
    parts = {kind: losses[kinds == kind] for kind in sorted(set(kinds))} | {ALL: losses}
    return [{**key, "kind": kind, "tokens": part.size, **_means(part)} for kind, part in parts.items()]


def _means(losses: np.ndarray[Any, Any]) -> dict[str, float]:
    loss = float(losses.mean(dtype=np.float64))  # every token counts the same, whatever batch it was in
    return {"loss": loss, "perplexity": float(np.exp(loss))}


def held_out(found: list[ChunkReader]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the held-out rows, [rows, sequence_length + 1], and their kinds.

    Raises DataError when the phases do not hold out the same rows: one could have trained on another's.
    """
    tokens, table = found[0].validation()
    for reader in found[1:]:
        if {r.tobytes() for r in reader.validation()[0]} != {r.tobytes() for r in tokens}:
            raise DataError(
                f"{reader.folder} and {found[0].folder} hold out different rows, expected the same in every phase; "
                f"give the phases one seed and one validation_rows, and rebuild the chunks"
            )
    return tokens, table["kind"].to_numpy()


def token_losses(model: PreTrainedModel, tokens: np.ndarray[Any, Any], *, batch_size: int) -> np.ndarray[Any, Any]:
    """Return the loss of every next token in nats, fp32 [rows, sequence_length]."""
    import torch

    whole = torch.from_numpy(tokens.astype(np.int64))
    batches = [whole[i : i + batch_size] for i in range(0, len(whole), batch_size)]
    with torch.inference_mode():
        return np.concatenate([next_token_loss(model, batch, reduction="none").numpy() for batch in batches])


def summary(frame: pl.DataFrame) -> dict[str, float]:
    """Return, per suite: the loss over all tokens at the first and last checkpoint, and the last by kind."""
    numbers: dict[str, float] = {}
    for (suite,), part in frame.sort("suite", "ckpt").group_by("suite", maintain_order=True):
        total = part.filter(pl.col("kind") == ALL)["loss"]
        numbers |= {f"{suite}/first/{ALL}": total[0]}
        last = part.filter(pl.col("ckpt") == pl.col("ckpt").max()).sort("kind")
        numbers |= {f"{suite}/last/{kind}": loss for kind, loss in last.select("kind", "loss").rows()}
    return numbers


def plots(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the loss and perplexity of every checkpoint and kind."""
    columns = ("suite", "ckpt", "tokens_seen", "kind", "tokens", "loss", "perplexity")
    return {"loss": frame.select(columns).sort("suite", "ckpt", "kind")}


def figures(frame: pl.DataFrame, params: Params) -> dict[str, Figure]:
    """Return, per suite of more than one checkpoint, the loss by kind against tokens."""
    parts = frame.sort("tokens_seen").group_by("suite", maintain_order=True)
    return {f"loss-{suite}": _figure(part) for (suite,), part in parts if part["ckpt"].n_unique() > 1}


def _figure(frame: pl.DataFrame) -> Figure:
    fig, (axes,) = figure(1, 1, width=6.6, height=3.7)
    ends = {}
    for (kind,), part in frame.sort("kind", "tokens_seen").group_by("kind", maintain_order=True):
        paint, width = (INK, 2.4) if kind == ALL else (KINDS.get(str(kind), MUTED), 1.3)
        axes.plot(part["tokens_seen"], part["loss"], color=paint, linewidth=width)
        ends[str(kind)] = (part["tokens_seen"][-1], part["loss"][-1], paint)
    axes.set_ylabel("held-out loss (nats per token)")
    tokens_axis(axes)
    phase_lines(axes, frame, named=True)
    end_labels(axes, ends, gap=0.055)
    return fig
