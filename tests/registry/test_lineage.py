"""Runs with deferred, skipped and repeated chunks and with branches, written by hand: what is told of them is true."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import registry
from llm360.checkpoint import Failure, TrainState
from llm360.data.order import chunk_order
from llm360.errors import IntegrityError, NotFound, NotReleased, StoreUnavailable
from llm360.files import FileEntry, manifest_sha256, sha256_bytes, write_bytes, write_json, write_manifest
from registry import Workspace, use_store
from registry.index import write_index
from registry.lineage import irregularities
from registry.workspace import chunk_files

ROWS, BATCH, WIDTH, SEED = 5, 2, 8, 3  # so two steps a chunk, and a row that fills none
STEPS, TOKENS = ROWS // BATCH, BATCH * WIDTH


@dataclasses.dataclass(frozen=True)
class Turn:
    """A chunk's turn: ``first``, ``retry`` or ``repeat``; ``fails`` when its loss is not finite."""

    chunk: int
    kind: str = "first"
    fails: bool = False
    lost: tuple[int, ...] = ()  # steps of the pass, from 0, that were skipped


def first(*chunks: int) -> list[Turn]:
    return [Turn(c) for c in chunks]


# Eight chunks: 2 and 5 fail and are put off; 2 fails again and is skipped, 5 goes well, chunk 0 completes the schedule.
STORY = [*first(0, 1), Turn(2, fails=True), *first(3, 4), Turn(5, fails=True), *first(6, 7)]
STORY += [Turn(2, "retry", fails=True), Turn(5, "retry"), Turn(0, "repeat")]
READ = [0, 1, 3, 4, 6, 7, 5, 0]  # the chunk before each checkpoint
# A branch off its checkpoint 4, which read chunk 6: chunk 6 of its own fails, comes again, and loses its second step.
BRANCH = [Turn(5), Turn(6, fails=True), Turn(7), Turn(6, "retry", lost=(1,))]


@dataclasses.dataclass
class Run:
    """Writes a suite of one phase as training does: checkpoints without a model in them, ledger, logs, manifest."""

    root: Path
    suite: str
    turns: list[Turn]
    begin: int = 0  # number of its first chunk and checkpoint
    parent: Path | None = None
    branch: str | None = None

    def write(self) -> Run:
        artifacts = self.root / "artifacts"
        shards = self._chunks(artifacts / "chunks" / self.suite)
        start = manifest_sha256(self.parent) if self.parent else "0" * 64
        blank = TrainState(
            step=self.begin * STEPS, phase_step=0, tokens_seen=self.begin * STEPS * TOKENS, chunks_seen=self.begin,
            chunk=self.begin - 1, position=0, deferred=(), skipped=(), torch_rng="",
        )  # fmt: skip
        events = [{"event": "phase_started", "phase": "pretrain", "seed": SEED, "start": start}]
        state, sha256 = blank, start
        for turn in self.turns:
            known = {"step": state.step, "batch_size": BATCH, "sha256": shards[turn.chunk], "turn": turn.kind}
            events.append({"event": "chunk_started", "chunk": turn.chunk, **known})
            if turn.fails:
                state = self._failed(state, turn, events)
            else:
                state, sha256 = self._passed(state, turn, events, sha256)
        text = "".join(json.dumps(event) + "\n" for event in events)
        write_bytes(artifacts / "ledgers" / self.suite / "ledger.jsonl", text.encode())
        write_index(Workspace(self.root), self.suite)
        return self

    def ckpt(self, ckpt: int) -> Path:
        return self.root / "artifacts/checkpoints" / self.suite / f"ckpt_{ckpt:03d}"

    def _failed(self, state: TrainState, turn: Turn, events: list[dict]) -> TrainState:
        kind = "deferred" if turn.kind == "first" else "skipped"
        events.append({"event": f"chunk_{kind}", "chunk": turn.chunk, "step": state.step + 1})
        return dataclasses.replace(
            state, **{kind: (*getattr(state, kind), Failure(chunk=turn.chunk, step=state.step + 1))}
        )

    def _passed(self, before: TrainState, turn: Turn, events: list[dict], parent: str) -> tuple[TrainState, str]:
        ckpt, step, seen = before.chunks_seen, before.step + STEPS, before.tokens_seen + STEPS * TOKENS
        state = dataclasses.replace(before, step=step, tokens_seen=seen, chunks_seen=ckpt + 1, chunk=turn.chunk)
        log = "".join(
            json.dumps({"suite": self.suite, "chunk": turn.chunk, "step": before.step + i}) + "\n" for i in (1, 2)
        )
        write_bytes(self.root / f"artifacts/metrics/{self.suite}/chunk_{ckpt:03d}.jsonl", log.encode())
        folder = self.ckpt(ckpt)
        write_bytes(folder / "model.safetensors", f"{self.suite} {ckpt}".encode())
        write_json(folder / "state.json", dataclasses.asdict(state))
        lost = [before.step + 1 + i for i in turn.lost]
        totals = {"step": step, "phase_step": 0, "tokens_seen": seen, "chunks_seen": ckpt + 1, "dtype": "float32"}
        key = {"suite": self.suite, "phase": "pretrain", "ckpt": ckpt, "parent": parent, "branch": self.branch}
        write_manifest(folder, {**totals, **key, "optimizer": True, "skipped_steps": lost})
        done = {"ckpt": ckpt, "step": step, "tokens_seen": seen, "steps": STEPS, "rows_unused": ROWS - STEPS * BATCH}
        sha256 = manifest_sha256(folder)
        events += [{"event": "step_skipped", "chunk": turn.chunk, "step": s} for s in lost]
        events.append(
            {"event": "chunk_finished", "chunk": turn.chunk, **done, "metrics_sha256": sha256_bytes(log.encode())}
        )
        events.append({"event": "checkpoint_saved", "ckpt": ckpt, "step": step, "manifest_sha256": sha256})
        return state, sha256

    def _chunks(self, folder: Path) -> dict[int, str]:
        count = 1 + max(turn.chunk for turn in self.turns) - self.begin
        shards = {self.begin + i: sha256_bytes(f"{self.suite} {i}".encode()) for i in range(count)}
        files = [FileEntry(path=chunk_files(c, c - self.begin)[0], bytes=1, sha256=s) for c, s in shards.items()]
        fields = {"format": "llm360-chunks/2", "suite": self.suite, "first_chunk": self.begin, "chunks": count}
        fields |= {"rows_per_chunk": ROWS, "last_chunk_rows": None, "sequence_length": WIDTH}
        write_json(folder / "manifest.json", fields | {"files": [dataclasses.asdict(f) for f in files]})
        return shards


@pytest.fixture
def base(tmp_path):
    run = Run(tmp_path, "base-run", STORY).write()
    with use_store(Workspace(tmp_path)):
        yield run


@pytest.fixture
def branch(base):
    return Run(base.root, "side-run", BRANCH, begin=5, parent=base.ckpt(4), branch="base-run/ckpt-4").write()


def test_every_checkpoint_saw_the_chunks_that_were_read_not_those_of_its_number(base):
    for ckpt in range(len(READ)):
        assert registry.suite("base-run").chunks_seen(ckpt) == READ[: ckpt + 1]
        assert registry.checkpoint("base-run", ckpt=ckpt).chunks_seen() == READ[: ckpt + 1]


def test_steps_and_rows_are_those_of_the_chunk_that_was_read(base):
    for step in range(1, len(READ) * STEPS + 1):
        batch = registry.data_at("base-run", step=step)
        ckpt = (step - 1) // STEPS
        assert (batch.ckpt, batch.chunk) == (ckpt, READ[ckpt])
        order = chunk_order(seed=SEED, phase="pretrain", chunk=READ[ckpt], rows=ROWS)
        assert batch.rows.tolist() == order[(step - 1) % STEPS * BATCH :][:BATCH].tolist()
    row = int(chunk_order(seed=SEED, phase="pretrain", chunk=0, rows=ROWS)[0])
    assert registry.steps_of("base-run", chunk=0, row=row) == [1, 15]
    assert registry.steps_of("base-run", chunk=2, row=row) == []
    turns = registry.rows_seen("base-run", ckpt=7)["turn"].to_list()
    assert turns == ["first"] * 6 + ["retry", "repeat"]


def test_a_log_is_that_of_its_checkpoint_and_its_hash_is_found_by_that_number(base, capsys):
    for ckpt, chunk in enumerate(READ):
        (entry,) = registry.resolve("base-run", ckpt=ckpt, kind="log").files
        path = base.root / "artifacts/metrics/base-run" / entry.path
        assert entry.sha256 == sha256_bytes(path.read_bytes())
        assert json.loads(path.read_text().splitlines()[0])["chunk"] == chunk
    assert registry.load_metrics("base-run")["chunk"].to_list() == [c for c in READ for _ in range(STEPS)]
    assert "NOT checked" not in capsys.readouterr().err


def test_what_was_irregular_is_told_with_the_checkpoint_after_it(base):
    told = irregularities("base-run").select("ckpt", "event", "chunk", "step").rows()
    assert told == [
        (2, "chunk_deferred", 2, 5), (4, "chunk_deferred", 5, 9), (6, "chunk_skipped", 2, 13),
        (6, "chunk_retried", 5, 13), (7, "chunk_repeated", 0, 15),
    ]  # fmt: skip
    assert irregularities("base-run", ckpt=4)["event"].to_list() == ["chunk_deferred", "chunk_deferred"]
    assert irregularities("base-run", ckpt=1).is_empty()
    with pytest.raises(NotReleased, match="amber: its ledger was not published; what is known: Four of the 360"):
        irregularities("amber")


@pytest.mark.parametrize("suite", ["base-run", "side-run"])
def test_the_index_tells_the_same_from_the_checkpoints_alone(branch, suite):
    index = Workspace(branch.root).read_index(suite)
    told = irregularities(suite).filter(suite=suite)
    for row in index["checkpoints"]:
        assert row["irregular"] == sorted(told.filter(ckpt=row["ckpt"])["event"].unique())
        assert row["chunk"] == registry.suite(suite).chunks_seen(row["ckpt"])[-1]
    assert index["branch"] == ("base-run/ckpt-4" if suite == "side-run" else None)


def test_a_branch_is_followed_back_into_the_suite_it_comes_from(branch):
    suite = registry.suite("side-run")
    assert (str(suite.branch), suite.base, suite.span()) == ("base-run/ckpt-4", None, "5 to 7")
    assert suite.chunks_seen(7) == [*READ[:5], 5, 7, 6]
    seen = registry.rows_seen("side-run", ckpt=6)
    assert seen["suite"].to_list() == ["base-run"] * 5 + ["side-run"] * 2
    assert seen["chunk"].to_list() == [*READ[:5], 5, 7]
    assert [registry.data_at("side-run", step=s).suite for s in (10, 11)] == ["base-run", "side-run"]
    assert registry.data_at("side-run", step=9).rows.tolist() == registry.data_at("base-run", step=9).rows.tolist()
    events = irregularities("side-run")
    assert events["suite"].to_list() == ["base-run"] * 2 + ["side-run"] * 3
    assert events["event"].to_list()[2:] == ["chunk_deferred", "step_skipped", "chunk_retried"]


def test_a_row_of_the_base_counts_only_before_the_branch(branch):
    row = int(chunk_order(seed=SEED, phase="pretrain", chunk=0, rows=ROWS)[0])
    assert registry.steps_of("side-run", chunk=0, row=row) == [1]  # it is repeated at step 15 of the base alone
    with pytest.raises(NotFound, match="base-run/chunk-0 has rows 0 to 4, read row 5"):
        registry.steps_of("side-run", chunk=0, row=5)


def test_a_skipped_step_says_so_and_trained_on_no_row(branch):
    skipped = registry.data_at("side-run", step=16)
    assert (skipped.skipped, skipped.chunk, skipped.ckpt, skipped.tokens_seen) == (True, 6, 7, 16 * TOKENS)
    assert not registry.data_at("side-run", step=15).skipped
    assert registry.steps_of("side-run", chunk=6, row=int(skipped.rows[0])) == []
    assert registry.rows_seen("side-run", ckpt=7).row(-1, named=True) | {"steps": 2, "steps_skipped": 1, "rows": 2} == (
        registry.rows_seen("side-run", ckpt=7).row(-1, named=True)
    )


def test_before_the_branch_the_same_point_is_named(branch):
    for ask in (registry.load, registry.checkpoint):
        with pytest.raises(NotFound, match="side-run branched off base-run/ckpt-4; base-run/ckpt-3 is the same point"):
            ask("side-run", ckpt=3)
    with pytest.raises(NotFound, match=r"side-run/chunk-4: .*see base-run/chunk-4; it has 5 to 7 itself"):
        registry.load_chunk("side-run", chunk=4)
    with pytest.raises(NotFound, match="side-run/ckpt-8: not in this suite; nearest: side-run/ckpt-7"):
        registry.load("side-run", ckpt=8)


def test_a_base_that_was_trained_anew_is_refused_by_history_and_index(branch, base):
    Run(base.root, "base-run", first(*range(8))).write()
    for ask in (
        lambda: registry.rows_seen("side-run", ckpt=5),
        lambda: registry.data_at("side-run", step=1),
        lambda: irregularities("side-run"),
        lambda: registry.suite("side-run").chunks_seen(5),
    ):
        with pytest.raises(IntegrityError, match=r"side-run branched off a base-run/ckpt-4 .* was trained anew"):
            ask()
    with pytest.raises(IntegrityError, match=r"ckpt_005: its parent is .*, but base-run/ckpt-4, which it branched off"):
        write_index(Workspace(base.root), "side-run")


def test_the_index_of_a_branch_is_made_without_its_base(branch, base):
    shutil.rmtree(base.root / "artifacts/checkpoints/base-run")
    before = (base.root / "artifacts/index/side-run.json").read_bytes()
    assert write_index(Workspace(base.root), "side-run").read_bytes() == before
    shutil.rmtree(branch.ckpt(5))
    with pytest.raises(IntegrityError, match="no ckpt_005 before"):
        write_index(Workspace(base.root), "side-run")


def test_numbers_that_do_not_go_on_from_the_branch_are_refused(branch):
    path = branch.root / "artifacts/index/side-run.json"
    index = json.loads(path.read_text())
    for changed, message in (
        ({"branch": None}, "begins at 5, expected 0"),
        ({"branch": "base-run/ckpt-5"}, "expected 6, for"),
    ):
        write_json(path, index | changed)
        with pytest.raises(IntegrityError, match=f"index of side-run: .*{message}"):
            registry.suite("side-run")


def test_without_ledger_the_state_proves_it_or_what_is_missing_is_said(base):
    shutil.rmtree(base.root / "artifacts/ledgers")
    assert registry.checkpoint("base-run", ckpt=1).chunks_seen() == [0, 1]
    for ckpt in range(2, 8):
        with pytest.raises(
            StoreUnavailable, match=r"`registry pull base-run/log-0` brings it.*no chunk .* was put off"
        ):
            registry.checkpoint("base-run", ckpt=ckpt).chunks_seen()
    shutil.rmtree(base.ckpt(1))
    with pytest.raises(StoreUnavailable, match="what base-run/ckpt-1 saw is in that ledger alone"):
        registry.suite("base-run").chunks_seen(1)


def test_a_branch_pulled_alone_needs_proof_of_its_base_too(branch, base):
    shutil.rmtree(base.root / "artifacts/ledgers")
    with pytest.raises(StoreUnavailable, match=r"base-run, pretrain: .*what base-run/ckpt-4 saw"):
        registry.suite("side-run").chunks_seen(5)


def test_a_state_that_was_altered_proves_nothing(base):
    shutil.rmtree(base.root / "artifacts/ledgers")
    path = base.ckpt(4) / "state.json"
    write_json(path, json.loads(path.read_text()) | {"deferred": [], "chunk": 4})
    with pytest.raises(IntegrityError, match=r"ckpt_004/state\.json"):
        registry.suite("base-run").chunks_seen(4)
