"""Print what the mixtures of params.yaml will need, before any work.

Sizes come from artifacts/ where sources and tokenizers are built, else from the tokens that the sources section
declares. An impossible mixture is shown, then refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.config import canonical_json, from_mapping
from llm360.data.corpus import declaration
from llm360.data.mixture import ChunkParams
from llm360.data.planning.plan import KindPlan, PhasePlan, Plan, plan
from llm360.data.planning.refusals import free_bytes, require_possible, require_special, size
from llm360.data.planning.supply import Supply, counted, declared, is_built
from llm360.data.tokens.tokenizer import BOS, EOS, UNK, TokenizerParams
from llm360.errors import ConfigError, did_you_mean
from llm360.files import read_manifest
from stages._stage import ARTIFACTS, PARAMS, mapping, one_line_errors, section

if TYPE_CHECKING:
    from llm360.data.tokens.encoder import Encoder

COLUMNS = ("kind", "part", "share", "rows", "tokens", "there are", "epochs", "allowed", "FIM", "how it is known")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m stages.plan", description=__doc__)
    parser.add_argument("--phase", help="key of the chunks section; all of them when left out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    with one_line_errors():
        phases = read_phases(args.phase)
        made = make_plan(phases)
        if args.json:
            sys.stdout.write(json.dumps(as_json(made), indent=1) + "\n")
        else:
            show(made, phases)
        for phase in made.phases.values():
            require_possible(phase)
    return 0


def read_phases(key: str | None) -> dict[str, ChunkParams]:
    """Return the phases of params.yaml, or the one that is asked for."""
    every = mapping("chunks")
    if key is not None and key not in every:
        raise ConfigError(f"{PARAMS}: no phase {key!r}; {did_you_mean(key, every)}")
    chosen = every if key is None else {key: every[key]}
    return {k: from_mapping(ChunkParams, v, where=f"{PARAMS}: chunks.{k}") for k, v in chosen.items()}


def make_plan(phases: Mapping[str, ChunkParams]) -> Plan:
    """Plan the phases from params.yaml and what is in artifacts/."""
    pretrain = mapping("pretrain")
    for params in phases.values():
        require_special(params, special_tokens(params.tokenizer))
    return plan(
        phases,
        supplies={key: {k: _supply(k, params) for k in params.mixture} for key, params in phases.items()},
        batch_sizes={key: pretrain[key]["batch_size"] for key in phases if key in pretrain},
        vocab_sizes={key: _vocab_size(params.tokenizer) for key, params in phases.items()},
    )


def special_tokens(tokenizer: str) -> list[str]:
    """Return the special tokens that a tokenizer has or will have."""
    return [UNK, BOS, EOS, *section(f"tokenizers.{tokenizer}", TokenizerParams).extra_tokens]


def _vocab_size(tokenizer: str) -> int:
    params = section(f"tokenizers.{tokenizer}", TokenizerParams)
    return params.vocab_size + len(params.extra_tokens) + params.reserved


def _supply(kind: str, params: ChunkParams) -> Supply:
    folder = ARTIFACTS / "sources" / kind
    sources = mapping("sources")
    if is_built(folder):
        supply = counted(folder, params.mixture[kind], params, _encoder(params.tokenizer))
        return supply if kind not in sources or _up_to_date(kind, folder) else _doubted(kind, supply)
    if kind not in sources:
        raise ConfigError(
            f"{PARAMS}: {params.folder} mixes {kind!r}, which sources lacks; {did_you_mean(kind, sources)}"
        )
    return declared(sources[kind].get("tokens"), params.mixture[kind].part)


def _up_to_date(kind: str, folder: Path) -> bool:
    """Return whether a kind's documents were built with the decisions that params.yaml names now."""
    manifest, where = read_manifest(folder), f"sources.{kind}"
    recorded = manifest.get("selection", manifest.get("corpus"))
    chosen = declaration.declared(kind, mapping(where), where=f"{PARAMS}: {where}")
    return recorded is None or canonical_json(recorded) == canonical_json(chosen.decisions)


def _doubted(kind: str, supply: Supply) -> Supply:
    note = f"{supply.note}; built with other parameters; run dvc repro sources@{kind}"
    return dataclasses.replace(supply, note=note)


@functools.cache
def _encoder(tokenizer: str) -> Encoder | None:
    folder = ARTIFACTS / "tokenizers" / tokenizer
    if not is_built(folder):
        return None
    from llm360.data.tokens.encoder import load_encoder

    return load_encoder(folder)


def show(made: Plan, phases: Mapping[str, ChunkParams]) -> None:
    """Print the plan: for each phase its sizes and a table of its kinds, then the disk for all of it."""
    for key, phase in made.phases.items():
        sys.stdout.write("\n".join([key, *(f"  {line}" for line in facts(phase))]) + "\n\n")
        table([COLUMNS, *(cells(kind, phases[key]) for kind in phase.kinds)])
    sys.stdout.write(f"disk for all: {disk(made)}\n")


def facts(phase: PhasePlan) -> list[str]:
    """Return a phase's sizes in words."""
    width, first, last = phase.sequence_length + 1, phase.chunk_rows[0], phase.chunk_rows[-1]
    short = f", the last one of {last:,}" if last != first else ""
    lines = [
        f"chunks  {len(phase.chunk_rows)} of {first:,} rows{short}; {phase.rows:,} rows x {width:,} tokens = "
        f"{phase.tokens:,} tokens stored",
        f"disk    {size(phase.chunk_bytes)} of chunks; {size(phase.working_bytes)} more until they are done",
    ]
    if phase.batch_size:
        also = f" (the last chunk: {phase.steps[-1]:,} steps, {phase.rows_left[-1]:,} rows left over)" if short else ""
        lines.insert(
            1,
            f"steps   {phase.steps[0]:,} a chunk at batch {phase.batch_size:,}, {phase.rows_left[0]:,} rows left over"
            f"{also}; {sum(phase.steps):,} steps train on {phase.targets:,} tokens",
        )
    return lines


def cells(kind: KindPlan, params: ChunkParams) -> tuple[str, ...]:
    """Return a kind's line of the table."""
    ingredient, needed = params.mixture[kind.kind], kind.epochs_needed
    return (
        kind.kind,
        ingredient.part,
        f"{kind.share:.4f}",
        f"{kind.rows:,}",
        f"{kind.tokens:,}",
        "unknown" if kind.supply.tokens is None else f"{kind.supply.tokens:,}",
        "unknown" if needed is None else f"{needed:.3f}",
        f"{kind.epochs}",
        f"{ingredient.fim.rate:g}" if ingredient.fim else "",
        "; ".join([kind.supply.note, *_doubts(kind)]),
    )


def _doubts(kind: KindPlan) -> list[str]:
    """Return what speaks against a kind's numbers: too few tokens, or enough only within an estimate's error."""
    if kind.short:
        return [f"{kind.short:,} TOO FEW"]
    error = f"within the estimate's error of {kind.supply.tolerance * kind.epochs:,} tokens"
    return [f"over what is allowed; {error}"] if kind.over else []


def disk(made: Plan) -> str:
    """Return the disk that all phases need, one made after the other."""
    free = free_bytes(ARTIFACTS)
    short = "" if free >= made.peak_bytes else ", which is too little"
    documents = (
        f"{size(made.documents_bytes)} of documents" if made.documents_bytes else "documents not known (not built)"
    )
    return (
        f"{documents}, {size(made.chunk_bytes)} of chunks, at most "
        f"{size(made.peak_bytes)} at a time; {size(free)} free here{short}"
    )


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table, its first row the names: by rich on a terminal, in plain columns otherwise."""
    if sys.stdout.isatty():
        _rich_table(rows)
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            sys.stdout.write("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() + "\n")
    sys.stdout.write("\n")


def _rich_table(rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    made = Table(*rows[0], box=None, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows[1:]:
        made.add_row(*row)
    Console().print(made, markup=False)


def as_json(made: Plan) -> dict[str, Any]:
    """Return the plan as plain values; sizes in rows, tokens and bytes."""
    totals = {name: getattr(made, name) for name in ("documents_bytes", "chunk_bytes", "peak_bytes")}
    phases = {key: _phase_json(phase) for key, phase in made.phases.items()}
    return {"phases": phases, **totals, "free_bytes": free_bytes(ARTIFACTS)}


def _phase_json(phase: PhasePlan) -> dict[str, Any]:
    derived = ("rows", "tokens", "targets", "steps", "rows_left", "chunk_bytes", "working_bytes", "peak_bytes")
    kinds = [
        {**dataclasses.asdict(kind), **{name: getattr(kind, name) for name in ("epochs_needed", "short", "over")}}
        for kind in phase.kinds
    ]
    return {**dataclasses.asdict(phase), **{name: getattr(phase, name) for name in derived}, "kinds": kinds}


if __name__ == "__main__":
    sys.exit(main())
