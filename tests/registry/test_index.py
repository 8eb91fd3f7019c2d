from __future__ import annotations

import json
import shutil

import pytest

from llm360.errors import IntegrityError, StoreUnavailable
from llm360.files import manifest_sha256, read_json, write_json
from registry.index import build_index, write_index
from stages.index import main


def _change(folder, **fields):
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", manifest | fields)


def test_a_row_per_checkpoint_with_its_lineage(workspace, ckpt_folder):
    rows = build_index(workspace, "toy-smoke")
    assert [(r["ckpt"], r["phase"], r["step"], r["phase_step"]) for r in rows] == [
        (0, "phase1", 2, 2), (1, "phase1", 4, 4), (2, "phase2", 6, 2),
    ]  # fmt: skip
    assert rows[1]["path"] == "checkpoints/toy-smoke/phase1/ckpt_001"
    assert [(r["chunk"], r["irregular"], r["branch"]) for r in rows] == [(i, [], None) for i in range(3)]
    assert rows[2]["parent"] == rows[1]["manifest_sha256"] == manifest_sha256(ckpt_folder)


def test_the_stage_writes_the_same_bytes_again(workspace):
    path = workspace.artifacts / "index" / "toy-smoke.json"
    before = path.read_bytes()
    assert main(["--suite", "toy-smoke"]) == 0
    assert path.read_bytes() == before
    assert read_json(path)["phases"] == [
        {"name": "phase1", "first": 0, "last": 1}, {"name": "phase2", "first": 2, "last": 2},
    ]  # fmt: skip


def test_what_is_half_written_is_no_checkpoint(workspace, ckpt_folder):
    shutil.copytree(ckpt_folder, ckpt_folder.with_name(".partial-ckpt_009"))
    assert len(build_index(workspace, "toy-smoke")) == 3


def test_a_folder_without_manifest_is_refused_and_the_old_index_kept(workspace, ckpt_folder):
    path = workspace.artifacts / "index" / "toy-smoke.json"
    before = path.read_bytes()
    (ckpt_folder / "manifest.json").unlink()
    with pytest.raises(IntegrityError, match=r"ckpt_001: no manifest.json, so it is not complete"):
        write_index(workspace, "toy-smoke")
    assert path.read_bytes() == before


@pytest.mark.parametrize("ckpt", [0, 1])
def test_a_gap_in_the_numbers_is_refused(workspace, ckpt):
    shutil.rmtree(workspace.artifacts / f"checkpoints/toy-smoke/phase1/ckpt_00{ckpt}")
    with pytest.raises(IntegrityError, match=f"no ckpt_00{ckpt} before"):
        build_index(workspace, "toy-smoke")


def test_two_checkpoints_with_the_same_weights_are_both_named(workspace, ckpt_folder):
    other = ckpt_folder.with_name("ckpt_000")
    _change(other, files=read_json(ckpt_folder / "manifest.json")["files"])
    with pytest.raises(IntegrityError, match=r"phase1/ckpt_001 and .*phase1/ckpt_000 hold the same weights"):
        build_index(workspace, "toy-smoke")


def test_a_folder_renamed_is_refused(workspace, ckpt_folder):
    ckpt_folder.rename(ckpt_folder.with_name("ckpt_003"))
    with pytest.raises(IntegrityError, match=r"ckpt_003: its manifest names toy-smoke/ckpt-1"):
        build_index(workspace, "toy-smoke")


def test_checkpoints_of_two_runs_are_refused(workspace, ckpt_folder):
    _change(ckpt_folder, parent="0" * 64)
    with pytest.raises(IntegrityError, match=r"ckpt_001: its parent is 0+, but .*ckpt_000 is"):
        build_index(workspace, "toy-smoke")


def test_the_base_of_a_fine_tuned_suite_is_in_the_index(workspace):
    for phase in ("phase1", "phase2"):
        for folder in (workspace.artifacts / "checkpoints/toy-smoke" / phase).iterdir():
            if folder.name != "ckpt_000":
                shutil.rmtree(folder)
            else:
                _change(folder, base={"suite": "amber-mini", "ckpt": 355})
    assert read_json(write_index(workspace, "toy-smoke"))["base"] == "amber-mini/ckpt-355"
    import registry

    with pytest.raises(StoreUnavailable, match="amber-mini, pretrain: not trained in this workspace"):
        registry.suite("toy-smoke").chunks_seen(0)  # those of its base


def test_no_checkpoint_at_all_says_what_would_bring_them(workspace):
    with pytest.raises(StoreUnavailable, match=r"toy-mini: no checkpoint; `make repro` builds them"):
        build_index(workspace, "toy-mini")


def test_the_stage_ends_with_one_line(workspace, capsys):
    with pytest.raises(SystemExit, match="1"):
        main(["--suite", "toy-mini"])
    assert capsys.readouterr().err.count("\n") == 1
    assert json.loads((workspace.artifacts / "index/toy-smoke.json").read_text())["suite"] == "toy-smoke"
