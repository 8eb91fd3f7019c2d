"""Which data was read when: the order of a chunk, the rows of a step, what a checkpoint has seen, when a row was read.

All of it is computed from the ledger and the chunks' manifest, the same for every world size and after any restart, and
through the suites that a branch comes from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llm360.errors import NotFound
from llm360.train.ledger import Pass
from registry import lineage
from registry.history import History
from registry.ids import whole_number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What one optimizer step trained on.

    suite is the one whose chunk it is: of a step before a branch, the suite that was branched from. ckpt is the
    checkpoint saved after the chunk. step counts over the suite from 1, as in the metrics. positions are the places in
    the chunk's order, rows (int64) the chunk's rows there: row r is ``load_chunk(...).tokens[r]``. pass_number is 1
    when training read the chunk for the first time. skipped: the step's loss or gradient was not finite, and it left
    the weights as they were. tokens_seen is the suite's total after the step.
    """

    suite: str
    phase: str
    chunk: int
    ckpt: int
    pass_number: int
    step: int
    skipped: bool
    positions: range
    rows: npt.NDArray[np.int64]
    tokens_seen: int
    reading: Pass = dataclasses.field(repr=False)
    history: History = dataclasses.field(repr=False)

    def provenance(self) -> pl.DataFrame:
        """Return where these rows are from, in the batch's order: row, array_row, kind, epoch, spans. Read when called.

        row is the row's number in its chunk, as ``rows`` here; array_row that in the phase's whole array.
        """
        return self.history.provenance(self.reading)[self.rows]

    def tokens(self) -> npt.NDArray[Any]:
        """Return the batch, [batch_size, sequence_length + 1] uint16 or uint32, as the step read it."""
        return self.history.tokens(self.reading, self.rows)


def order(suite: str, *, chunk: int, phase: str | None = None) -> npt.NDArray[np.int64]:
    """Return a chunk's rows in the order of training, int64: position p of the chunk is row ``order(...)[p]``.

    ``phase``, when given, must be the chunk's. Raises NotReleased where the order was not published, NotFound for a
    chunk outside the suite or the phase, StoreUnavailable when the suite was not trained in this workspace.
    """
    from llm360.data.order import chunk_order

    history = History.of(suite)
    index, found = history.chunk_phase(chunk)
    if phase not in (None, found.name):
        raise NotFound(f"{suite}: chunk {index} is in phase {found.name!r}, read phase {phase!r}")
    name, seed = history.seed(found)
    return chunk_order(seed=seed, phase=name, chunk=index, rows=history.chunks(index).rows(index))


def data_at(suite: str, *, step: int) -> Batch:
    """Return what optimizer step ``step`` trained on, counted over the suite from 1 as in the metrics.

    >>> registry.data_at("amber-mini", step=1234).provenance()

    Raises NotFound for a step beyond the run, InvalidId for one below 1, and what ``order`` raises.
    """
    history, reading = lineage.at(suite, step)
    width = int(history.trained(reading).manifest["sequence_length"])
    positions = reading.positions(int(step))
    return Batch(
        suite=history.suite.name,
        phase=reading.phase,
        chunk=reading.chunk,
        ckpt=reading.ckpt,
        pass_number=reading.number,
        step=int(step),
        skipped=step in reading.skipped_steps,
        positions=positions,
        rows=_order(reading)[positions.start : positions.stop],
        tokens_seen=reading.tokens_seen - (reading.last_step - int(step)) * reading.batch_size * width,
        reading=reading,
        history=history,
    )


def _order(reading: Pass) -> npt.NDArray[np.int64]:
    from llm360.data.order import chunk_order

    rows = reading.rows + reading.rows_unused
    return chunk_order(seed=reading.seed, phase=reading.phase, chunk=reading.chunk, rows=rows)


def rows_seen(suite: str, *, ckpt: int | str) -> pl.DataFrame:
    """Return what a checkpoint was trained on: one row per pass over a chunk, in the order of training.

    Columns suite (whose chunk it is), phase, ckpt (saved after the pass), chunk, pass (1: the first over this chunk),
    turn (first, retry or repeat), first_step, steps, steps_skipped (that left the weights as they were), batch_size,
    rows (trained on), rows_unused (that filled no step). A fine-tuned suite saw what its base saw, a branch at first
    what the suite saw that it comes from. Raises what ``order`` raises, and NotFound for a checkpoint that the run has
    not saved yet.
    """
    import polars as pl

    texts = dict.fromkeys(("suite", "phase", "turn"), pl.String)
    names = ("suite", "phase", "ckpt", "chunk", "pass", "turn", "first_step", "steps", "steps_skipped")
    columns = {name: texts.get(name, pl.Int64) for name in (*names, "batch_size", "rows", "rows_unused")}
    rows = [_row(history, reading) for history, reading in lineage.until(*lineage.pretrained(suite, ckpt))]
    return pl.DataFrame(rows, schema=columns, orient="row")


def _row(history: History, reading: Pass) -> tuple[str | int, ...]:
    key = (history.suite.name, reading.phase, reading.ckpt, reading.chunk, reading.number, reading.turn)
    skipped = len(reading.skipped_steps)
    rows = reading.rows - skipped * reading.batch_size
    return (*key, reading.first_step, reading.steps, skipped, reading.batch_size, rows, reading.rows_unused)


def sources_seen(suite: str, *, ckpt: int | str) -> pl.DataFrame:
    """Return what a checkpoint was trained on by kind of text: kind, rows, tokens (targets), share of the rows.

    A row that was read twice counts twice, one that filled no step, or one that was skipped, not at all: exact, from
    the manifest's counts of each chunk, less those rows. Only for them the chunk's provenance is read.
    Raises what ``rows_seen`` raises, and StoreUnavailable for a chunk's manifest or provenance that is not here.
    """
    import polars as pl

    rows: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for history, reading in lineage.until(*lineage.pretrained(suite, ckpt)):
        manifest = history.trained(reading).manifest
        for kind, count in _kinds(history, reading, manifest).items():
            rows[kind] += count
            tokens[kind] += count * manifest["sequence_length"]
    total = max(rows.total(), 1)
    table = [(kind, n, tokens[kind], n / total) for kind, n in sorted(rows.items(), key=lambda x: (-x[1], x[0]))]
    schema = {"kind": pl.String, "rows": pl.Int64, "tokens": pl.Int64, "share": pl.Float64}
    return pl.DataFrame(table, schema=schema, orient="row")


def _kinds(history: History, reading: Pass, manifest: Mapping[str, Any]) -> Counter[str]:
    """Return how many rows of each kind the steps of a pass were taken on."""
    local = reading.chunk - manifest["first_chunk"]
    counts = Counter({kind: rows[local] for kind, rows in manifest["kinds_by_chunk"].items()})
    if idle := _idle(reading):
        rows = _order(reading)[idle]
        counts.subtract(history.provenance(reading, columns=["kind"])["kind"][rows].to_list())
    return counts


def _idle(reading: Pass) -> list[int]:
    """Return the positions of a pass that no weight comes from: of steps that were skipped, and what filled no step."""
    skipped = [position for step in reading.skipped_steps for position in reading.positions(step)]
    return [*skipped, *range(reading.rows, reading.rows + reading.rows_unused)]


def steps_of(suite: str, *, chunk: int, row: int) -> list[int]:
    """Return the optimizer steps that trained on a row of a chunk, counted over the suite from 1.

    Empty when the row was among those that filled no step, or its step or its chunk was skipped, or its turn has not
    come; several when the chunk was repeated. Of a branch, a chunk before its own first one is that of the suite it
    comes from, and only the steps before the branch count. Raises what ``order`` raises, and NotFound for a row that
    the chunk does not have.
    """
    history = History.of(suite)
    branch, begun = lineage.branch_of(history), history.begins()
    if branch is not None and begun is not None and 0 <= (whole_number(chunk) or 0) < history.suite.phases[0].first:
        return [step for step in steps_of(branch.suite, chunk=chunk, row=row) if step <= begun]
    number, _ = history.chunk_phase(chunk)
    index, count = whole_number(row), history.chunks(number).rows(number)
    if index is None or not 0 <= index < count:
        raise NotFound(f"{suite}/chunk-{number} has rows 0 to {count - 1}, read row {row!r}")
    steps = [_step(history, reading, index) for reading in history.over(number)]
    return [step for step in steps if step is not None]


def _step(history: History, reading: Pass, row: int) -> int | None:
    """Return the step of a pass that trained on a row, None when it filled none or was skipped."""
    history.trained(reading)
    step = reading.step_at(int((_order(reading) == row).argmax()))
    return None if step in reading.skipped_steps else step
