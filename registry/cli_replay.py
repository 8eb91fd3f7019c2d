"""``registry replay``: make a checkpoint again and compare, or audit whole suites."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm360.errors import InvalidId, StoreUnavailable
from llm360.progress import say, track

if TYPE_CHECKING:
    from llm360.replay.compare import FileDifference
    from llm360.replay.replay import ReplayReport

WORST = 5  # tensors of a file whose distances are printed
FORMS = "SUITE --ckpt K, SUITE --all, or --all"


def replay(
    suite: Annotated[str | None, typer.Argument(help="A suite's name, for example amber-mini.")] = None,
    ckpt: Annotated[str | None, typer.Option(help="The checkpoint to make again: an index or 'final'.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint of the suite, or of all suites here.")] = False,
    changed: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="What if: schedule.peak=1e-3, for example.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a checkpoint again and compare every byte. Example: `registry replay amber-mini --ckpt 17`.

    Exit code 0 only when all are identical.
    """
    if suite is not None and ckpt is not None and not every:
        identical = _one(suite, ckpt, dict(map(_pair, changed or [])), as_json)
    elif every and ckpt is None and not changed:
        identical = _all(_suites_here() if suite is None else [suite], as_json)
    else:
        given = {"SUITE": suite, "--ckpt": ckpt, "--all": every, "--set": changed}
        read = " ".join(name for name, value in given.items() if value) or "nothing"
        raise InvalidId(f"read {read}, expected {FORMS}; for example registry replay amber-mini --ckpt 17")
    raise typer.Exit(0 if identical else 1)


def _suites_here() -> list[str]:
    from registry.replay import audited_suites

    return audited_suites()


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidId(f"--set: read {text!r}, expected KEY=VALUE, for example schedule.peak=1e-3")
    try:
        return key, json.loads(value)
    except ValueError:  # a word, such as defer
        return key, value


def _one(suite: str, ckpt: str, params: dict[str, Any], as_json: bool) -> bool:
    from registry.replay import replay as run

    report = run(suite, ckpt=int(ckpt) if ckpt.isdecimal() else ckpt, params=params)
    _print(dataclasses.asdict(report), _lines(report), as_json)
    return report.identical


def _lines(report: ReplayReport) -> list[str]:
    steps = f"{report.steps} steps, {report.seconds:.2f} s"
    verdict = f"{report.suite}/ckpt-{report.ckpt}: {'identical' if report.identical else 'differs'} ({steps})"
    culprits = [f"  {c}" for c in report.culprits]
    notes = [f"  note: {n}" for n in report.notes]
    return [verdict, *culprits, *notes, *(line for f in report.files for line in _file_lines(f))]


def _file_lines(file: FileDifference) -> list[str]:
    ulps = {t.name: ", ".join(f"{apart}: {n}" for apart, n in t.ulps.items()) for t in file.tensors[:WORST] if t.ulps}
    return [f"  {file}", *(f"    {name}: elements by ulps apart: {counts}" for name, counts in ulps.items())]


def _all(suites: list[str], as_json: bool) -> bool:
    """Audit suites and print the sum; one that is not here to its end is not identical, whatever is here."""
    reports, cut, started = [], [], time.monotonic()
    for name in suites:
        try:
            for report in _audited(name):
                reports.append(report)
                if not report.identical and not as_json:
                    typer.echo("\n".join(_lines(report)))
        except StoreUnavailable as error:
            say(f"error: {type(error).__name__}: {error}")
            cut.append(name)
    trained = sum(report.steps > 0 for report in reports)
    say(f"{trained} of {len(reports)} were trained again, in {time.monotonic() - started:.1f} s")
    _print_sum(reports, cut, as_json)
    return all(report.identical for report in reports) and not cut


def _audited(suite: str) -> Iterator[ReplayReport]:
    from registry import api
    from registry.replay import replay_all

    return track(replay_all(suite), label=f"replay {suite}", total=len(list(api.suite(suite).indices())))


def _print_sum(reports: list[ReplayReport], cut: list[str], as_json: bool) -> None:
    differ = [report for report in reports if not report.identical]
    known = {"identical": len(reports) - len(differ), "differ": len(differ), "not_to_the_end": cut}
    first = f", first: {differ[0]}" if differ else ""
    line = f"{known['identical']} identical, {known['differ']} differ{first}"
    line += f"; not to the end: {', '.join(cut)}" if cut else ""
    _print({**known, "reports": [dataclasses.asdict(report) for report in reports]}, [line], as_json)


def _print(value: Any, lines: list[str], as_json: bool) -> None:
    typer.echo(json.dumps(value, indent=1) if as_json else "\n".join(lines))
