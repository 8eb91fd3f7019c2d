"""The command line: ``registry ls``, ``show``, ``pull``, ``data``, ``replay``. Data goes to stdout, words to stderr."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from llm360.errors import LLM360Error
from llm360.progress import say
from registry.cli_data import data
from registry.cli_replay import replay
from registry.ids import ArtifactId
from registry.suite import Suite

app = typer.Typer(
    help="Find, show and fetch the artifacts of model training runs. Example: registry show amber-mini/ckpt-355",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich costs a tenth of a second at every start
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="SUITE/KIND-INDEX, for example amber-mini/ckpt-355.")]


@app.command("ls")
def list_ids(
    suite: Annotated[str | None, typer.Argument(help="A suite's name; without it the suites are listed.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind: ckpt, chunk, optimizer or log.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the suites, or a suite's artifacts. Example: `registry ls amber-mini --kind ckpt`."""
    from registry import api

    if suite is None:
        found = [{"suite": s.name, "title": s.title} for s in map(api.suite, api.suites())]
        _print(found, [f"{s['suite']:<18} {s['title']}" for s in found], as_json)
    else:
        rows = [_row(api.suite(suite), i) for i in api.ls(suite, kind)]
        _print(rows, ["  ".join(r.values()) for r in rows], as_json)
        for gap in api.suite(suite).gaps:
            say(f"not released: {gap.kind}: {gap.reason}")


@app.command()
def show(artifact: Id, as_json: AsJson = False) -> None:
    """Show where an artifact is, what it is and its hashes. Example: `registry show amber-mini/ckpt-355`."""
    from registry import api

    found = api.show(ArtifactId.parse(artifact))
    _print(api.as_dict(found), _lines(api.as_dict(found)), as_json)


@app.command()
def pull(artifact: Id, as_json: AsJson = False) -> None:
    """Fetch one artifact alone and check its bytes. Example: `registry pull amber-mini/ckpt-355`."""
    from registry import api

    found = api.pull(ArtifactId.parse(artifact))
    _print(api.as_dict(found), [found.location], as_json)


app.command()(data)
app.command()(replay)


def _row(suite: Suite, artifact: ArtifactId) -> dict[str, str]:
    """Return an id with its phase and, for a checkpoint on the Hub, its branch."""
    index = artifact.index or 0
    branch = {"branch": suite.revision(index)} if suite.hub is not None and artifact.kind == "ckpt" else {}
    return {"id": str(artifact), "phase": suite.phase_of(index).name} | branch


def _lines(artifact: dict[str, Any]) -> list[str]:
    files = [f"  {f['path']}  {f['bytes']} bytes  sha256 {f['sha256']}" for f in artifact["files"]]
    fields = {"id": artifact["id"], "location": artifact["location"]} | dict(artifact["manifest"])
    if artifact["location"].startswith("hf://"):
        fields["commit"] = artifact["commit"] or "unknown: the Hub cannot be reached and nothing is cached"
    return [f"{k}: {v if isinstance(v, str) else json.dumps(v)}" for k, v in fields.items()] + files


def _print(value: Any, lines: list[str], as_json: bool) -> None:
    print(json.dumps(value, indent=1) if as_json else "\n".join(lines))


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit code 1."""
    try:
        app()
    except LLM360Error as error:
        say(f"error: {type(error).__name__}: {error}")
        sys.exit(1)
