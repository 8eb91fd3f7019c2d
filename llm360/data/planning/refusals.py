"""What is refused before any work is done: too few tokens, a special token that is not there, too small a disk."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from llm360.data.mixture import ChunkParams
from llm360.errors import ConfigError, DataError, StorageFull, did_you_mean

if TYPE_CHECKING:
    from llm360.data.planning.plan import KindPlan, PhasePlan


def require_possible(phase: PhasePlan) -> None:
    """Raise DataError with the arithmetic when a kind cannot give what the mixture asks of it."""
    short = [_shortage(k, phase.sequence_length + 1) for k in phase.kinds if k.short]
    if short:
        raise DataError(
            f"{phase.folder}: {'; '.join(short)}. Add text, allow more epochs, lower the weight or make fewer rows"
        )


def _shortage(kind: KindPlan, row_tokens: int) -> str:
    supply, plural = kind.supply, "s" * (kind.epochs > 1)
    have = (supply.tokens or 0) * kind.epochs
    return (
        f"{kind.kind} must give {kind.rows:,} rows x {row_tokens:,} tokens = {kind.tokens:,}, but has "
        f"{supply.tokens:,} ({supply.note}) x {kind.epochs} epoch{plural} = {have:,}, which is "
        f"{kind.tokens - have:,} too few"
    )


def require_special(params: ChunkParams, known: Collection[str]) -> None:
    """Raise ConfigError when fill-in-the-middle names a token that is not among a tokenizer's special ones."""
    for kind, ingredient in params.mixture.items():
        for token in ingredient.fim.tokens if ingredient.fim else ():
            if token not in known:
                raise ConfigError(
                    f"{params.folder}: mixture.{kind}.fim names {token!r}, which tokenizer {params.tokenizer} lacks; "
                    f"{did_you_mean(token, known)}; add it to tokenizers.{params.tokenizer}.extra_tokens"
                )


def require_room(phase: PhasePlan, work: Path) -> None:
    """Raise StorageFull when the disk of ``work`` has less free than making the chunks needs.

    What an earlier run left in ``work`` is counted as done.
    """
    done = sum(f.stat().st_size for f in work.rglob("*") if f.is_file()) if work.is_dir() else 0
    free = free_bytes(work)
    if free < phase.peak_bytes - done:
        raise StorageFull(
            f"{phase.folder}: making its chunks needs {size(phase.peak_bytes)} ({size(phase.working_bytes)} of packed "
            f"rows, {size(phase.chunk_bytes)} of chunks), of which {size(done)} are there; {work} has {size(free)} "
            f"free. Free some space, or put artifacts/ on a larger disk"
        )


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that ``path`` is on or will be on."""
    there = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free


def size(number: float) -> str:
    """Return bytes or tokens with a unit of a thousand, such as ``1.26 T``."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:,.2f} {name}B"
    return f"{number:.0f} B"
