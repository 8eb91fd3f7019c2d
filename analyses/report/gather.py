"""What the report says, read from the artifacts of a workspace; a part that was not built is None or empty."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from analyses.common.plot import count_label
from analyses.common.run import FIGURES, load, names
from analyses.report.data import Table, data_tables
from llm360.errors import IntegrityError
from llm360.files import MANIFEST, read_json
from registry.workspace import Workspace

ORDER = ("data", "training", "validation", "trajectories", "memorization")  # then the others by name
SCORES: dict[str, Any] = {
    **dict.fromkeys(("suite", "task", "metric", "title"), pl.String),
    **dict.fromkeys(("ckpt", "shots"), pl.Int64),
    **dict.fromkeys(("value", "stderr", "chance"), pl.Float64),
}
REWARDS = "rewards/"
MEASURED = {
    "loss": "loss, nats per answer token",
    f"{REWARDS}margins": "reward margin, chosen over rejected",
    f"{REWARDS}accuracies": "reward accuracy, share of margins above 0",
    "logps/chosen": "log probability of a chosen answer, nats",
    "logps/rejected": "log probability of a rejected answer, nats",
}
FAMILIES = {"llama": "Amber (LLaMA)", "crystalcoder": "CrystalCoder"}  # by config.json's model_type


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteCard:
    """A suite: its facts in order, as (label, text), and its checkpoints as the index lists them; base if finetuned."""

    name: str
    base: str | None
    facts: list[tuple[str, str]]
    checkpoints: list[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure's name inside its analysis, its SVG file and what to see in it."""

    name: str
    path: Path
    caption: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """An analysis: built is false when its artifacts are not here, planned when params.yaml has its section."""

    name: str
    title: str
    lead: str
    built: bool
    planned: bool
    figures: list[Figure]
    tables: list[Table]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A finetuned suite: its base, and what was measured as (label, before, after); before is None for rewards."""

    name: str
    base: str
    measured: list[tuple[str, float | None, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All of the page. scores has a row per suite's last evaluated checkpoint, and a column per task."""

    suites: list[SuiteCard]
    sections: list[Section]
    tasks: list[Mapping[str, Any]]
    scores: list[tuple[str, list[Mapping[str, Any] | None]]]
    finetuned: list[Finetuned]
    sources: list[Mapping[str, Any]]


def gather(workspace: Workspace, planned: Collection[str]) -> Report:
    """Read the whole report; planned: the analyses that params.yaml has a section of.

    Raises IntegrityError for a file that is there and cannot be read.
    """
    tasks, scores = _scores(workspace.artifacts / "analyses" / "trajectories" / "trajectories.csv")
    cards = [_card(workspace, name) for name in workspace.indexes()]
    return Report(
        suites=sorted(cards, key=lambda card: (card.base is not None, card.name)),
        sections=[_section(workspace, name, planned) for name in sorted(names(), key=_place)],
        tasks=tasks,
        scores=scores,
        finetuned=[_finetuned(p) for p in sorted((workspace.artifacts / "metrics").glob("*/summary.json"))],
        sources=[read_json(p) for p in sorted((workspace.artifacts / "sources").glob(f"*/{MANIFEST}"))],
    )


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def _card(workspace: Workspace, name: str) -> SuiteCard:
    index = workspace.read_index(name)
    checkpoints, base = index["checkpoints"], index["base"]
    last, phases = checkpoints[-1], [(p["name"], p["last"] - p["first"] + 1) for p in index["phases"]]
    steps = ("optimizer steps", str(last["step"]))
    trained = [
        ("checkpoints", str(len(checkpoints))),
        steps,
        ("tokens", count_label(last["tokens_seen"])),
        ("chunks", str(last["chunks_seen"])),
        *_losses(workspace, name),
        ("phases", ", ".join(f"{phase}\N{NO-BREAK SPACE}({n})" for phase, n in phases)),
    ]
    facts = [("made from", str(base)), steps] if base else trained
    shape = _shape(workspace.artifacts / last["path"])
    return SuiteCard(name=name, base=base, facts=[*shape, *facts], checkpoints=checkpoints)


def _shape(folder: Path) -> list[tuple[str, str]]:
    """Return family and parameters of a checkpoint, where its files are here."""
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return []
    kind = str(read_json(folder / "config.json")["model_type"])
    return [("family", FAMILIES.get(kind, kind)), ("parameters", count_label(parameters(weights)))]


def parameters(weights: Path) -> int:
    """Return how many numbers a safetensors file holds, read from its header alone."""
    with open(weights, "rb") as handle:
        try:
            (size,) = struct.unpack("<Q", handle.read(8))
            header = json.loads(handle.read(size))
        except (struct.error, ValueError) as error:
            raise IntegrityError(f"{weights}: no safetensors header ({error}); pull or rebuild it") from error
    sizes = 0
    for name, tensor in header.items():
        count = 1
        for side in tensor["shape"] if name != "__metadata__" else (0,):
            count *= side
        sizes += count
    return sizes


def _losses(workspace: Workspace, suite: str) -> list[tuple[str, str]]:
    found = []
    for analysis, key, label in (
        ("training", "loss/last", "loss, last chunk"),
        ("validation", "last/all", "held-out loss"),
    ):
        path = workspace.artifacts / "analyses" / analysis / "summary.json"
        value = read_json(path).get(f"{suite}/{key}") if path.is_file() else None
        if value is not None:
            found.append((label, f"{value:.3f}"))
    return found


def _section(workspace: Workspace, name: str, planned: Collection[str]) -> Section:
    analysis, folder = load(name), workspace.artifacts / "analyses" / name
    title, _, lead = (analysis.__doc__ or name).strip().splitlines()[0].partition(": ")
    figures = [
        Figure(name=p.stem, path=p, caption=_caption(p.stem, analysis.CAPTIONS))
        for p in sorted((folder / FIGURES).glob("*.svg"))
    ]
    order = list(analysis.CAPTIONS)
    figures.sort(key=lambda f: (next((i for i, what in enumerate(order) if f.name.startswith(f"{what}-")), 0), f.name))
    return Section(
        name=name,
        title=title,
        lead=lead[:1].upper() + lead[1:],
        built=(folder / MANIFEST).is_file(),
        planned=name in planned,
        figures=figures,
        tables=data_tables(folder) if name == "data" else [],
    )


def _caption(name: str, captions: Mapping[str, str]) -> str:
    found = [what for what in captions if name.startswith(f"{what}-")]
    suite = name.removeprefix(f"{found[0]}-") if found else name
    return f"{suite}. {captions[found[0]]}" if found else name


def _scores(path: Path) -> tuple[list[Mapping[str, Any]], list[tuple[str, list[Mapping[str, Any] | None]]]]:
    """Return the tasks, and per suite the name of its last evaluated checkpoint and that one's row for each task."""
    if not path.is_file():
        return [], []
    frame = _table(path)
    tasks = frame.unique("task", keep="first", maintain_order=True).to_dicts()
    found = {(row["suite"], row["ckpt"], row["task"]): row for row in frame.to_dicts()}
    last = frame.group_by("suite", maintain_order=True).agg(pl.col("ckpt").max()).rows()
    return tasks, [(f"{s}, ckpt {c}", [found.get((s, c, task["task"])) for task in tasks]) for s, c in last]


def _table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_csv(path, schema_overrides=SCORES).select(*SCORES)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise IntegrityError(
            f"{path}: no table of scores ({reason}), expected the columns {', '.join(SCORES)}; "
            "delete it and rebuild it: dvc repro analyze@trajectories"
        ) from error


def _finetuned(path: Path) -> Finetuned:
    summary = read_json(path)
    measured = [
        (f"{stage.upper()}: {label}", _before(summary[stage], key), summary[stage]["after"][key])
        for stage in ("sft", "dpo")
        for key, label in MEASURED.items()
        if key in summary.get(stage, {}).get("after", {})
    ]
    base = summary["base"]
    return Finetuned(name=summary["suite"], base=f"{base['suite']}/ckpt-{base['ckpt']}", measured=measured)


def _before(measured: Mapping[str, Any], key: str) -> float | None:
    """Return what was measured before; a reward is 0 there by definition, since the policy is its own reference."""
    return None if key.startswith(REWARDS) else float(measured["before"][key])
