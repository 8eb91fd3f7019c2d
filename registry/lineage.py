"""A run through the suites that it branched from: what a checkpoint saw, what a step read, what was irregular.

A fine-tuned suite saw what its base saw; a branch read its own chunks after those that the other suite read before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm360.errors import IntegrityError, NotReleased
from llm360.train.ledger import Pass, require_unbroken
from registry import catalog
from registry.history import History
from registry.ids import ArtifactId, Kind, whole_number
from registry.irregular import from_events
from registry.suite import Suite

if TYPE_CHECKING:
    import polars as pl

Reading = tuple[History, Pass]  # a pass, and the history of the suite that it is in


def pretrained(suite: str, ckpt: int | str) -> tuple[str, int]:
    """Return the suite and checkpoint that were trained on chunks: the base's of a fine-tuned suite."""
    found = catalog.find(suite)
    wanted = ArtifactId(suite=suite, kind=Kind.CKPT, index=found.ckpt(ckpt))
    found.require(wanted)
    return (suite, wanted.index or 0) if found.base is None else pretrained(found.base.suite, found.base.index or 0)


def branch_of(history: History) -> ArtifactId | None:
    """Return the checkpoint that a suite branched off, if it did.

    Raises IntegrityError when the ledgers here say that the other suite was trained anew since, to other bytes.
    """
    branch = history.suite.branch
    if branch is None:
        return None
    other = History.of(branch.suite)
    start, saved = history.start(), other.saved(branch.index or 0)
    if start is not None and saved is not None and start != saved:
        raise IntegrityError(
            f"{history.suite.name} branched off a {branch} whose manifest has sha256 {start}, but the ledger here "
            f"saved one with {saved}: {branch.suite} was trained anew; train the branch again (make repro)"
        )
    return branch


def until(suite: str, ckpt: int) -> list[Reading]:
    """Return the passes up to a checkpoint in the order of training, those before a branch first."""
    history = History.of(suite)
    own = [(history, reading) for reading in history.until(ckpt)]
    branch = branch_of(history)
    if branch is None:
        return own
    before = until(branch.suite, branch.index or 0)
    require_unbroken([before[-1][1], own[0][1]])
    return before + own


def at(suite: str, step: int) -> Reading:
    """Return the pass that took an optimizer step, counted from 1 over the suite and those that it branched from."""
    history = History.of(suite)
    branch = branch_of(history)
    begun = history.begins() if branch is not None else None
    if branch is not None and begun is not None and 1 <= (whole_number(step) or 0) <= begun:
        return at(branch.suite, step)
    return history, history.at(step)


def chunks_seen(suite: Suite, ckpt: int) -> list[int]:
    """Return the chunk of each pass up to a checkpoint, in the order of training; see ``Suite.chunks_seen``."""
    suite.require(ArtifactId(suite=suite.name, kind=Kind.CKPT, index=ckpt))
    if suite.base is not None:
        return chunks_seen(catalog.find(suite.base.suite), suite.base.index or 0)
    suite.require(ArtifactId(suite=suite.name, kind=Kind.CHUNK, index=ckpt))
    if suite.hub is not None:  # no ledger was published: the rule of amber-train's main.py; notes say what is not known
        return list(range(suite.phases[0].first, ckpt + 1))
    history = History.of(suite.name)
    branch = branch_of(history)
    before = [] if branch is None else chunks_seen(catalog.find(branch.suite), branch.index or 0)
    return before + history.chunks_read(ckpt)


def irregularities(suite: str, *, ckpt: int | str | None = None) -> pl.DataFrame:
    """Return what was irregular in a suite's training, or up to a checkpoint, in order; no row when nothing was.

    Columns suite, phase, ckpt (the first one saved after it, null when none was yet), event, chunk, step (at which it
    showed, counted over the suite; of a pass its first), detail. Events: chunk_deferred (not finite, put off),
    chunk_skipped (again, for good), chunk_retried (read after all), chunk_repeated (to complete the schedule),
    step_skipped, world_changed. Raises NotReleased for a suite without a published ledger, with what is known of it.
    """
    import polars as pl

    name, last = pretrained(suite, "final" if ckpt is None else ckpt)
    texts = {"suite": pl.String, "phase": pl.String, "ckpt": pl.Int64, "event": pl.String}
    schema = texts | {"chunk": pl.Int64, "step": pl.Int64, "detail": pl.String}
    rows = _irregular(name, None if ckpt is None and name == suite else last)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _irregular(suite: str, last: int | None) -> list[tuple[Any, ...]]:
    """Return the rows up to checkpoint ``last``, or all that the ledgers tell so far."""
    found = catalog.find(suite)
    if found.hub is not None:
        raise NotReleased(f"{suite}: its ledger was not published; what is known: {' '.join(found.notes) or 'nothing'}")
    history = History.of(suite)
    branch = branch_of(history)
    rows = [] if branch is None else _irregular(branch.suite, branch.index)
    for phase, _ in history.phases_until(found.last if last is None else last):
        entries = from_events(history.events(phase))
        kept = [e for e in entries if last is None or (e["ckpt"] is not None and e["ckpt"] <= last)]
        rows += [(suite, phase.name, e["ckpt"], e["event"], e.get("chunk"), e.get("step"), _detail(e)) for e in kept]
    return rows


def _detail(event: dict[str, Any]) -> str | None:
    if event["event"] != "world_changed":
        return None
    return f"ranks {event['ranks']}, replicas {event['replicas']}"
