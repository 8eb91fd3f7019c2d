"""Which data was read when: runs of any shape, written by hand without a single token, against a plain replay."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import registry
from llm360.data.order import chunk_order, step_rows, steps_in_chunk
from llm360.errors import IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import FileEntry, sha256_file, write_bytes, write_json
from registry import Workspace, use_store
from registry.workspace import chunk_files

KINDS = ("arxiv", "book", "c4")
WIDTH = 8  # sequence_length of the manifests
runs = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclasses.dataclass(frozen=True)
class Turn:
    """A chunk's turn in training: read at a batch size, or only begun (skipped, put off); lost are steps skipped."""

    chunk: int
    batch_size: int
    finished: bool
    lost: tuple[int, ...] = ()  # counted from 0 in the pass


@dataclasses.dataclass(frozen=True)
class PhasePlan:
    name: str
    seed: int
    first: int
    kinds: list[list[str]]  # of each row of each chunk, in stored order
    turns: list[Turn]

    def rows(self, chunk: int) -> int:
        return len(self.kinds[chunk - self.first])


@st.composite
def turn(draw, first: int, sizes: list[int], *, finished: bool) -> Turn:
    chunk = draw(st.integers(0, len(sizes) - 1))
    batch_size = draw(st.integers(1, min(4, sizes[chunk])))  # fewer rows than a batch is refused
    lost = draw(st.sets(st.integers(0, sizes[chunk] // batch_size - 1), max_size=2)) if finished else ()
    return Turn(first + chunk, batch_size, finished, tuple(sorted(lost)))


@st.composite
def phase_plans(draw, first: int, name: str) -> PhasePlan:
    """Chunks in any order, skipped, put off and repeated, at batch sizes that change; as many passes as chunks."""
    rows, count = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    sizes = [rows] * (count - 1) + [draw(st.integers(1, rows))]
    kinds = [draw(st.lists(st.sampled_from(KINDS), min_size=n, max_size=n)) for n in sizes]
    turns = [draw(turn(first, sizes, finished=True)) for _ in sizes]
    for _ in range(draw(st.integers(0, 4))):
        turns.insert(draw(st.integers(0, len(turns))), draw(turn(first, sizes, finished=False)))
    return PhasePlan(name, draw(st.integers(0, 99)), first, kinds, turns)


@st.composite
def plans(draw) -> list[PhasePlan]:
    one = draw(phase_plans(0, "one"))
    return [one, draw(phase_plans(len(one.kinds), "two"))] if draw(st.booleans()) else [one]


def replay(plan: list[PhasePlan]) -> list[dict]:
    """What train_chunk reads, step by step."""
    steps, seen, ckpt = [], 0, -1
    for phase in plan:
        passes = Counter()
        for turn in (t for t in phase.turns if t.finished):
            rows = phase.rows(turn.chunk)
            order = chunk_order(seed=phase.seed, phase=phase.name, chunk=turn.chunk, rows=rows)
            passes[turn.chunk] += 1
            ckpt += 1
            for s in range(steps_in_chunk(rows=rows, batch_size=turn.batch_size)):
                seen += turn.batch_size * WIDTH
                read = step_rows(order, step=s, batch_size=turn.batch_size).tolist()
                key = {"phase": phase.name, "chunk": turn.chunk, "pass": passes[turn.chunk], "tokens_seen": seen}
                key |= {"ckpt": ckpt, "skipped": s in turn.lost}
                steps.append(key | {"rows": read, "kinds": [phase.kinds[turn.chunk - phase.first][r] for r in read]})
    return steps


def write_run(root: Path, plan: list[PhasePlan], *, suite: str = "hand-made") -> int:
    """Write ledgers, manifests and provenance, and return the last checkpoint; there are no tokens at all."""
    artifacts, step, seen, ckpt = root / "artifacts", 0, 0, -1
    spans = [{"name": p.name, "first": p.first, "last": p.first + len(p.kinds) - 1} for p in plan]
    index = {"format": "llm360-index/2", "suite": suite, "base": None, "branch": None, "phases": spans}
    index |= {"checkpoints": []}
    write_json(artifacts / "index" / f"{suite}.json", index)
    for phase in plan:
        below = suite if len(plan) == 1 else f"{suite}/{phase.name}"
        shards = write_chunks(artifacts / "chunks" / below, suite, phase)
        events = [{"event": "phase_started", "phase": phase.name, "seed": phase.seed}]
        read: dict[int, str] = {}  # how a chunk's next turn is called
        for turn in phase.turns:
            begun = {"chunk": turn.chunk, "step": step, "batch_size": turn.batch_size, "sha256": shards[turn.chunk]}
            begun |= {"turn": read.get(turn.chunk, "first")}
            read[turn.chunk] = "repeat" if turn.finished or begun["turn"] == "repeat" else "retry"
            events += [{"event": "chunk_started", **begun}, {"event": "heard_of_later", "chunk": turn.chunk}]
            if turn.finished:
                steps, unused = divmod(phase.rows(turn.chunk), turn.batch_size)
                step, seen = step + steps, seen + steps * turn.batch_size * WIDTH
                ckpt += 1
                done = {"ckpt": ckpt, "step": step, "tokens_seen": seen, "steps": steps, "rows_unused": unused}
                first = step - steps + 1
                events += [{"event": "step_skipped", "chunk": turn.chunk, "step": first + s} for s in turn.lost]
                events.append({"event": "chunk_finished", "chunk": turn.chunk, **done})
                events.append({"event": "checkpoint_saved", "ckpt": ckpt, "step": step})
        text = "".join(json.dumps(e) + "\n" for e in events) + '{"event": "cut by'
        write_bytes(artifacts / "ledgers" / below / "ledger.jsonl", text.encode())
    return ckpt


def write_chunks(folder: Path, suite: str, phase: PhasePlan) -> dict[int, str]:
    files, shards = [], {}
    for chunk, kinds in enumerate(phase.kinds, start=phase.first):
        shard, _, provenance = chunk_files(chunk, chunk - phase.first)
        shards[chunk] = f"{chunk:064d}"
        files.append(FileEntry(path=shard, bytes=1, sha256=shards[chunk]))
        (folder / provenance).parent.mkdir(parents=True, exist_ok=True)
        spans = [[{"document": f"{chunk}/{r}", "licence": "MIT", "start": 0, "end": 9}] for r in range(len(kinds))]
        pl.DataFrame({"row": range(len(kinds)), "epoch": 0, "kind": kinds, "spans": spans}).write_parquet(
            folder / provenance
        )
        size, sha256 = (folder / provenance).stat().st_size, sha256_file(folder / provenance)
        files.append(FileEntry(path=provenance, bytes=size, sha256=sha256))
    sizes = [len(kinds) for kinds in phase.kinds]
    fields = {
        "format": "llm360-chunks/2",
        "suite": suite,
        "first_chunk": phase.first,
        "chunks": len(sizes),
        "rows_per_chunk": sizes[0],
        "last_chunk_rows": sizes[-1],
        "sequence_length": WIDTH,
        "kinds_by_chunk": {kind: [c.count(kind) for c in phase.kinds] for kind in KINDS},
    }
    write_json(folder / "manifest.json", fields | {"files": [dataclasses.asdict(f) for f in files]})
    return shards


@contextlib.contextmanager
def workspace_of(plan: list[PhasePlan]):
    with tempfile.TemporaryDirectory() as root, use_store(Workspace(Path(root))):
        yield Path(root), write_run(Path(root), plan)


@runs
@given(plans())
def test_data_at_is_what_training_read_at_every_step(plan):
    with workspace_of(plan):
        for step, read in enumerate(replay(plan), start=1):
            batch = registry.data_at("hand-made", step=step)
            found = {"phase": batch.phase, "chunk": batch.chunk, "pass": batch.pass_number, "skipped": batch.skipped}
            found |= {"ckpt": batch.ckpt, "tokens_seen": batch.tokens_seen, "rows": batch.rows.tolist()}
            assert found == {key: value for key, value in read.items() if key != "kinds"}
            order = registry.order("hand-made", chunk=batch.chunk, phase=batch.phase)
            assert batch.rows.tolist() == order[list(batch.positions)].tolist()


@runs
@given(plans())
def test_steps_of_a_row_are_exactly_the_steps_that_trained_on_it(plan):
    expected: dict[tuple[int, int], list[int]] = {}
    for step, read in enumerate(replay(plan), start=1):
        for row in [] if read["skipped"] else read["rows"]:
            expected.setdefault((read["chunk"], row), []).append(step)
    with workspace_of(plan):
        every = [(c, r) for phase in plan for c in range(phase.first, phase.first + len(phase.kinds))
                 for r in range(phase.rows(c))]  # fmt: skip
        assert {key: registry.steps_of("hand-made", chunk=key[0], row=key[1]) for key in every} == {
            key: expected.get(key, []) for key in every
        }


@runs
@given(plans())
def test_rows_seen_and_sources_seen_count_every_row_that_a_step_was_taken_on(plan):
    steps = replay(plan)
    kept = [read for read in steps if not read["skipped"]]
    turns = [(p, t) for p in plan for t in p.turns if t.finished]
    with workspace_of(plan) as (_, last):
        seen = registry.rows_seen("hand-made", ckpt=last)
        assert seen["steps"].sum() == len(steps)
        assert seen["rows"].sum() == sum(len(read["rows"]) for read in kept)
        lost = seen["steps_skipped"] * seen["batch_size"]
        assert (seen["rows"] + lost + seen["rows_unused"]).to_list() == [p.rows(t.chunk) for p, t in turns]
        assert list(zip(seen["phase"], seen["chunk"], strict=True)) == [(p.name, t.chunk) for p, t in turns]
        assert seen["ckpt"].to_list() == list(range(last + 1))
        assert registry.suite("hand-made").chunks_seen(last) == seen["chunk"].to_list()
        kinds = Counter(kind for read in kept for kind in read["kinds"])
        sources = registry.sources_seen("hand-made", ckpt=last)
        assert {k: n for k, n in zip(sources["kind"], sources["rows"], strict=True) if n} == kinds
        assert sources["tokens"].sum() == steps[-1]["tokens_seen"] - WIDTH * lost.sum()
        assert sources["share"].sum() == pytest.approx(1.0 if kept else 0.0)


@runs
@given(plans())
def test_each_checkpoint_saw_the_chunks_of_the_passes_before_it(plan):
    passes = [t.chunk for p in plan for t in p.turns if t.finished]
    with workspace_of(plan):
        for ckpt in range(len(passes)):
            assert registry.suite("hand-made").chunks_seen(ckpt) == passes[: ckpt + 1]


REPEATED = [
    PhasePlan("one", 3, 0, [["arxiv"] * 5, ["book"] * 5], [Turn(0, 2, True), Turn(1, 2, False), Turn(0, 4, True)]),
    PhasePlan("two", 4, 2, [["c4"] * 3], [Turn(2, 1, True)]),
]


@pytest.fixture
def repeated(tmp_path):
    """Chunk 0 read twice, at batch size 2 (steps 1, 2) and 4 (step 3), chunk 1 skipped; chunk 2 at steps 4 to 6."""
    write_run(tmp_path, REPEATED)
    with use_store(Workspace(tmp_path)):
        yield tmp_path


def test_a_repeated_chunk_keeps_its_order_and_a_skipped_one_was_never_read(repeated):
    order = registry.order("hand-made", chunk=0)
    assert registry.steps_of("hand-made", chunk=0, row=int(order[0])) == [1, 3]
    assert registry.steps_of("hand-made", chunk=0, row=int(order[3])) == [2, 3]
    assert registry.steps_of("hand-made", chunk=0, row=int(order[4])) == []
    assert registry.steps_of("hand-made", chunk=1, row=0) == []
    assert registry.rows_seen("hand-made", ckpt=1).rows() == [
        ("hand-made", "one", 0, 0, 1, "first", 1, 2, 0, 2, 4, 1),
        ("hand-made", "one", 1, 0, 2, "repeat", 3, 1, 0, 4, 4, 1),
    ]
    assert order.dtype == np.int64


def test_nothing_but_ledger_and_manifest_is_needed_and_what_is_missing_is_said_when_it_is_read(repeated):
    shutil.rmtree(repeated / "artifacts/chunks/hand-made/one/provenance")
    batch = registry.data_at("hand-made", step=3)
    assert registry.rows_seen("hand-made", ckpt=2)["rows"].to_list() == [4, 4, 3]
    for read in (batch.provenance, batch.tokens, lambda: registry.sources_seen("hand-made", ckpt=1)):
        with pytest.raises(StoreUnavailable, match=r"hand-made/chunk-0 is not in this workspace.*`registry pull hand-"):
            read()


def test_provenance_of_a_batch_is_that_of_its_rows_in_its_order(repeated):
    batch = registry.data_at("hand-made", step=2)
    assert batch.provenance()["row"].to_list() == batch.rows.tolist()
    assert [s[0]["document"] for s in batch.provenance()["spans"].to_list()] == [f"0/{r}" for r in batch.rows]


def test_tokens_of_a_batch_are_those_of_the_chunk(workspace):
    batch = registry.data_at("toy-smoke", step=4)
    chunk = registry.load_chunk("toy-smoke", chunk=batch.chunk)
    assert (batch.chunk, len(batch.rows)) == (1, 2)
    assert batch.tokens().tolist() == chunk.tokens[batch.rows].tolist()


def test_a_step_that_was_not_taken_says_how_far_the_run_goes(repeated):
    with pytest.raises(NotFound, match="hand-made has no step 7: its run goes to step 6, in chunk 2"):
        registry.data_at("hand-made", step=7)
    for step in (0, -1, True, 1.5):
        with pytest.raises(InvalidId, match="steps count from 1"):
            registry.data_at("hand-made", step=step)


def test_a_phase_that_is_not_here_names_what_brings_it(repeated):
    shutil.rmtree(repeated / "artifacts/ledgers/hand-made/two")
    assert registry.data_at("hand-made", step=3).chunk == 0
    with pytest.raises(StoreUnavailable, match=r"hand-made, two: .*`registry pull hand-made/log-2`.* step 3"):
        registry.data_at("hand-made", step=4)
    write_run(repeated, REPEATED)
    shutil.rmtree(repeated / "artifacts/ledgers/hand-made/one")
    assert registry.data_at("hand-made", step=4).chunk == 2  # steps count over the suite: this ledger is enough
    with pytest.raises(StoreUnavailable, match=r"hand-made, one: .*`registry pull hand-made/log-0`"):
        registry.data_at("hand-made", step=3)
    with pytest.raises(StoreUnavailable, match=r"amber-mini, pretrain: not trained in this workspace.*make repro"):
        registry.data_at("amber-mini", step=4)


def test_outside_the_suite_the_phase_the_chunk_and_the_run_are_told_apart(repeated):
    with pytest.raises(NotFound, match="hand-made/chunk-3: not in this suite; nearest: hand-made/chunk-2"):
        registry.order("hand-made", chunk=3)
    with pytest.raises(NotFound, match="chunk 2 is in phase 'two', read phase 'one'"):
        registry.order("hand-made", chunk=2, phase="one")
    with pytest.raises(NotFound, match="hand-made/chunk-2 has rows 0 to 2, read row 3"):
        registry.steps_of("hand-made", chunk=2, row=3)
    ledger = repeated / "artifacts/ledgers/hand-made/one/ledger.jsonl"
    ledger.write_text("\n".join(ledger.read_text().splitlines()[:-2]) + "\n")
    with pytest.raises(NotFound, match=r"ledger\.jsonl: no checkpoint 1 was saved yet; its last is 0"):
        registry.rows_seen("hand-made", ckpt=1)


def test_chunks_that_were_made_anew_are_refused(repeated):
    manifest = repeated / "artifacts/chunks/hand-made/one/manifest.json"
    manifest.write_text(manifest.read_text().replace(f"{0:064d}", f"{7:064d}"))
    for read in (
        lambda: registry.data_at("hand-made", step=1),
        lambda: registry.steps_of("hand-made", chunk=0, row=0),
        lambda: registry.sources_seen("hand-made", ckpt=1),
    ):
        with pytest.raises(IntegrityError, match=r"hand-made/chunk-0: the ledger trained on 5 rows .*made anew"):
            read()


@pytest.mark.parametrize("suite", ["amber", "crystal"])
def test_an_order_that_was_not_published_is_not_released_with_its_source(suite):
    for ask in (
        lambda: registry.order(suite, chunk=3),
        lambda: registry.data_at(suite, step=3),
        lambda: registry.steps_of(suite, chunk=3, row=0),
        lambda: registry.rows_seen(suite, ckpt="final"),
        lambda: registry.sources_seen(suite, ckpt="final"),
    ):
        with pytest.raises(NotReleased, match=rf"{suite}: .*order.* \(source: {suite}"):
            ask()


def test_a_fine_tuned_suite_saw_what_its_base_saw(tmp_path):
    plan = [PhasePlan("pretrain", 1, 0, [["book"]] * 360, [Turn(i, 1, True) for i in range(360)])]
    write_run(tmp_path, plan, suite="amber-mini")
    with use_store(Workspace(tmp_path)):
        assert registry.rows_seen("amber-chat-mini", ckpt=0).equals(registry.rows_seen("amber-mini", ckpt=359))
        with pytest.raises(NotReleased, match="fine-tuned, not trained on chunks; see its base amber-mini/ckpt-359"):
            registry.data_at("amber-chat-mini", step=1)
