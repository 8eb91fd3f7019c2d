"""``registry data`` on the toy run: three chunks of four rows, two steps each, all of one kind."""

from __future__ import annotations

import json

import pytest

import registry


def test_a_step_shows_its_rows_with_kind_document_and_licence(workspace, run):
    batch = registry.data_at("toy-smoke", step=5)
    code, out, err = run("data", "toy-smoke", "--step", "5")
    lines = [line.split() for line in out.splitlines()]
    assert (code, lines[0]) == (0, ["position", "row", "kind", "document", "licence"])
    assert lines[1:] == [
        [str(p), str(r), "book", "d2", "MIT"] for p, r in zip(batch.positions, batch.rows, strict=True)
    ]
    assert err == "suite toy-smoke, step 5, phase phase2, chunk 2, pass 1, ckpt 2, skipped False, tokens_seen 80\n"
    found = json.loads(run("data", "toy-smoke", "--step", "5", "--json")[1])
    assert (found["tokens_seen"], [r["row"] for r in found["rows"]]) == (80, batch.rows.tolist())
    assert found["rows"][0]["documents"][0]["document"] == "d2"


def test_a_checkpoint_shows_what_it_has_seen(workspace, run):
    code, out, _ = run("data", "toy-smoke", "--ckpt", "1", "--sources")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0, [["kind", "rows", "tokens", "share"], ["book", "8", "64", "100.0000%"]],
    )  # fmt: skip
    assert json.loads(run("data", "toy-smoke", "--ckpt", "final", "--sources", "--json")[1])[0]["rows"] == 12
    rows = json.loads(run("data", "toy-smoke", "--ckpt", "1", "--json")[1])
    assert rows == registry.rows_seen("toy-smoke", ckpt=1).to_dicts()


@pytest.mark.parametrize(
    "words",
    ["", "--sources", "--chunk 1", "--row 1", "--step 1 --ckpt 1", "--step 1 --sources", "--chunk 1 --row 1 --sources"],
)
def test_exactly_one_question_is_asked(workspace, run, words):
    code, out, err = run("data", "toy-smoke", *words.split())
    assert (code, out) == (1, "")
    assert err.startswith(
        f"error: InvalidId: read {words.replace(' 1', '') or 'no option'}, expected --step N, --ckpt K"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("toy-smoke --step 7", "NotFound: toy-smoke has no step 7: its run goes to step 6, in chunk 2"),
        ("toy-smoke --ckpt 9", "NotFound: toy-smoke/ckpt-9: not in this suite"),
        ("toy-smok --step 7", "UnknownSuite: unknown suite 'toy-smok'"),
        ("amber --ckpt 355 --sources", "NotReleased: amber: the order of rows inside a chunk was drawn at run time"),
        ("amber --chunk 355 --row 3", "NotReleased: amber: the order of rows inside a chunk was drawn at run time"),
    ],
)
def test_an_error_is_one_line(workspace, run, words, message):
    code, out, err = run("data", *words.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {message}")
