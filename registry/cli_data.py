"""``registry data``: what a step read, what a checkpoint has seen, what a row says and when it was read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm360.errors import InvalidId, NotReleased
from llm360.progress import say

if TYPE_CHECKING:
    import polars as pl

FORMS = "--step N, --ckpt K, --ckpt K --sources, or --chunk C --row R"


def data(
    suite: Annotated[str, typer.Argument(help="A suite's name, for example amber-mini.")],
    step: Annotated[int | None, typer.Option(help="The rows of this optimizer step, counted from 1.")] = None,
    ckpt: Annotated[str | None, typer.Option(help="What this checkpoint has seen, a line per chunk read.")] = None,
    sources: Annotated[bool, typer.Option("--sources", help="With --ckpt: by kind of text instead.")] = False,
    chunk: Annotated[int | None, typer.Option(help="With --row: the chunk that the row is in.")] = None,
    row: Annotated[int | None, typer.Option(help="With --chunk: the row's text, documents and steps.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which data was read when. Example: `registry data amber-mini --step 1234`."""
    given = tuple(name for name, value in _named(step, ckpt, chunk, row).items() if value is not None)
    if step is not None and given == ("step",) and not sources:
        _step(suite, step, as_json)
    elif ckpt is not None and given == ("ckpt",):
        _ckpt(suite, int(ckpt) if ckpt.isdecimal() else ckpt, sources, as_json)
    elif chunk is not None and row is not None and given == ("chunk", "row") and not sources:
        _row(suite, chunk, row, as_json)
    else:
        read = " ".join(f"--{name}" for name in (*given, *(["sources"] if sources else [])))
        raise InvalidId(f"read {read or 'no option'}, expected {FORMS}; for example registry data amber-mini --step 1")


def _named(step: object, ckpt: object, chunk: object, row: object) -> dict[str, object]:
    return {"step": step, "ckpt": ckpt, "chunk": chunk, "row": row}


def _step(suite: str, step: int, as_json: bool) -> None:
    from registry import data_at

    batch = data_at(suite, step=step)
    rows = [
        {
            "position": position,
            "row": int(row),
            "kind": entry["kind"],
            "epoch": entry["epoch"],
            "documents": _documents(entry["spans"]),
        }
        for position, row, entry in zip(batch.positions, batch.rows, batch.provenance().to_dicts(), strict=True)
    ]
    about = {
        "suite": batch.suite,
        "step": batch.step,
        "phase": batch.phase,
        "chunk": batch.chunk,
        "pass": batch.pass_number,
        "ckpt": batch.ckpt,
        "skipped": batch.skipped,
    }
    about |= {"tokens_seen": batch.tokens_seen}
    if not as_json:
        say(", ".join(f"{name} {value}" for name, value in about.items()))
    cells = [(r["position"], r["row"], r["kind"], d["document"], d["licence"]) for r in rows for d in r["documents"]]
    _print({**about, "rows": rows}, _table(("position", "row", "kind", "document", "licence"), cells), as_json)


def _documents(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    places = ("start", "end", "document_start", "byte_start", "byte_end")
    names = ("document", "source", "origin", "licence", *places)
    return [{name: span.get(name) for name in names} for span in spans]


def _ckpt(suite: str, ckpt: int | str, sources: bool, as_json: bool) -> None:
    from registry import rows_seen, sources_seen

    frame = sources_seen(suite, ckpt=ckpt) if sources else rows_seen(suite, ckpt=ckpt)
    _print(frame.to_dicts(), _table(tuple(frame.columns), _cells(frame)), as_json)


def _cells(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return [tuple(f"{v:.4%}" if isinstance(v, float) else v for v in row) for row in frame.rows()]


def _row(suite: str, chunk: int, row: int, as_json: bool) -> None:
    from registry import StreamedChunk, load_chunk, steps_of

    steps = steps_of(suite, chunk=chunk, row=row)
    found = load_chunk(suite, chunk=chunk)
    if isinstance(found, StreamedChunk):
        raise NotReleased(f"{found.id}: its documents were not published; its rows: load_chunk(...).rows()")
    entry = found.provenance.row(row, named=True)
    about = {"suite": suite, "chunk": chunk, "row": row, "kind": entry["kind"], "epoch": entry["epoch"], "steps": steps}
    rearranged = [{"rearranged": excerpt.rearranged} for excerpt in found.documents(row)]
    documents = [a | b for a, b in zip(_documents(entry["spans"]), rearranged, strict=True)]
    if not as_json:
        say(", ".join(f"{name} {value}" for name, value in about.items()))
        for document in documents:
            say("  " + ", ".join(f"{name} {value}" for name, value in document.items() if value is not None))
    text = found.text(row)
    _print({**about, "documents": documents, "text": text}, [text], as_json)


def _table(names: tuple[str, ...], cells: list[tuple[Any, ...]]) -> list[str]:
    rows = [names, *(tuple("" if c is None else str(c) for c in row) for row in cells)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _print(value: Any, lines: list[str], as_json: bool) -> None:
    typer.echo(json.dumps(value, indent=1) if as_json else "\n".join(lines))
