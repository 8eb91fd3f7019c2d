from __future__ import annotations

import shutil

import pytest

import registry
from llm360.errors import ConfigError, IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from llm360.files import sha256_file, write_bytes, write_manifest
from registry import Workspace, use_store

ROWS, ROW_TOKENS = 4, 9


def test_load_gives_the_saved_weights_in_eval_mode_and_fp32(workspace, ckpt_folder):
    import torch
    from safetensors.torch import load_file

    model = registry.load("toy-smoke", ckpt=1)
    saved = load_file(ckpt_folder / "model.safetensors")
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(torch.equal(saved[name], weight) for name, weight in model.state_dict().items() if name in saved)


@pytest.mark.parametrize("dtype", ["bfloat16", "torch.bfloat16"])
def test_load_takes_a_dtype_by_name_or_value(workspace, dtype):
    import torch

    assert registry.load("toy-smoke", ckpt=1, dtype=dtype).dtype == torch.bfloat16
    assert registry.load("toy-smoke", ckpt=1, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_an_unknown_dtype_is_refused(workspace):
    with pytest.raises(ConfigError, match="did you mean 'float32'"):
        registry.load("toy-smoke", ckpt=1, dtype="float23")
    import torch

    with pytest.raises(ConfigError, match=r"torch\.int32.*Known: bfloat16, float16, float32, float64"):
        registry.load("toy-smoke", ckpt=1, dtype=torch.int32)


def test_final_and_branch_names_are_understood(workspace):
    assert registry.checkpoint("toy-smoke", ckpt="final").ckpt == 2
    assert registry.checkpoint("toy-smoke", ckpt="ckpt_001").ckpt == 1


def test_any_integer_is_an_index_and_a_bool_is_not(workspace):
    import numpy as np

    assert str(registry.checkpoint("toy-smoke", ckpt=np.int64(1)).id) == "toy-smoke/ckpt-1"
    assert type(registry.load_chunk("toy-smoke", chunk=np.uint8(1)).index) is int
    for value in (True, np.True_, 1.0, np.float64(1)):
        with pytest.raises(InvalidId):
            registry.checkpoint("toy-smoke", ckpt=value)


def test_ckpt_may_be_left_out_only_where_there_is_one(workspace):
    with pytest.raises(InvalidId, match=r'toy-smoke has 3 checkpoints.*load\("toy-smoke", ckpt=2\)'):
        registry.load("toy-smoke")
    with pytest.raises(StoreUnavailable, match="amber-chat-mini/ckpt-0 is not in this workspace"):
        registry.load("amber-chat-mini")


def test_checkpoint_tells_everything(workspace, ckpt_folder):
    checkpoint = registry.checkpoint("toy-smoke", ckpt=2)
    assert (str(checkpoint.id), checkpoint.suite, checkpoint.phase, checkpoint.ckpt) == (
        "toy-smoke/ckpt-2", "toy-smoke", "phase2", 2,
    )  # fmt: skip
    assert (checkpoint.step, checkpoint.tokens_seen, checkpoint.manifest["dtype"]) == (6, 96, "float32")
    assert checkpoint.path == workspace.artifacts / "checkpoints/toy-smoke/phase2/ckpt_002"
    assert checkpoint.chunks_seen() == [0, 1, 2]
    assert checkpoint.state().phase_step == 2
    assert checkpoint.tokenizer().convert_tokens_to_ids("w0") == 3
    assert checkpoint.metrics()["step"].to_list() == [1, 2, 3, 4, 5, 6]


def test_optimizer_state_is_named_by_parameter(workspace):
    checkpoint = registry.checkpoint("toy-smoke", ckpt=1)
    names = {n for n, _ in checkpoint.model().named_parameters()}
    tensors = checkpoint.optimizer()
    assert tensors.pop("step").item() == 2
    assert set(tensors) == {f"{n}|{m}" for n in names for m in ("exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "optimizer.safetensors"])
def test_one_flipped_bit_anywhere_is_named(workspace, ckpt_folder, flip_bit, name):
    flip_bit(ckpt_folder / name)
    with pytest.raises(IntegrityError, match=rf"{name}: sha256 .* expected"):
        registry.load("toy-smoke", ckpt=1)


def test_a_cut_file_is_named(workspace, ckpt_folder):
    path = ckpt_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(IntegrityError, match=r"model.safetensors: \d+ bytes, expected \d+"):
        registry.load("toy-smoke", ckpt=1)


def test_a_file_too_many_is_refused(workspace, ckpt_folder):
    (ckpt_folder / "adapter_config.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"adapter_config.json: not in manifest.json"):
        registry.load("toy-smoke", ckpt=1)


def test_each_part_is_checked_before_it_is_read(workspace, ckpt_folder, flip_bit):
    for name in ("optimizer.safetensors", "state.json", "tokenizer.json"):
        flip_bit(ckpt_folder / name)
    checkpoint = registry.checkpoint("toy-smoke", ckpt=1)
    for read in (checkpoint.optimizer, checkpoint.state, checkpoint.tokenizer):
        with pytest.raises(IntegrityError, match="sha256"):
            read()


def test_outside_absent_and_not_released_are_three_different_things(workspace, ckpt_folder):
    shutil.rmtree(ckpt_folder)
    with pytest.raises(NotFound, match=r"toy-smoke/ckpt-3: not in this suite; nearest: toy-smoke/ckpt-2"):
        registry.load("toy-smoke", ckpt=3)
    with pytest.raises(StoreUnavailable, match=r"`registry pull toy-smoke/ckpt-1` .*`make repro`"):
        registry.load("toy-smoke", ckpt=1)
    with pytest.raises(NotReleased, match="amber/optimizer-1"):
        registry.resolve("amber", ckpt=1, kind="optimizer")


def test_load_chunk_gives_the_rows_of_that_chunk(workspace):
    chunk = registry.load_chunk("toy-smoke", chunk=1)
    assert (str(chunk.id), chunk.phase, chunk.index) == ("toy-smoke/chunk-1", "phase1", 1)
    assert (chunk.tokens.shape, str(chunk.tokens.dtype)) == ((ROWS, ROW_TOKENS), "uint16")
    assert chunk.tokens[0, 0] == ROWS * ROW_TOKENS % 32
    assert chunk.provenance["row"].to_list() == list(range(ROWS))


def test_a_chunk_of_a_later_phase_is_counted_from_the_phase(workspace):
    chunk = registry.load_chunk("toy-smoke", chunk=2)
    assert chunk.tokens[0].tolist() == list(range(2, 2 + ROW_TOKENS))
    assert chunk.provenance["spans"][0][0]["document"] == "d2"


@pytest.mark.parametrize("name", ["tokens.zarr/c/1/0", "tokens.zarr/zarr.json", "provenance/chunk_001.parquet"])
def test_an_altered_chunk_is_named_and_its_neighbour_still_loads(workspace, flip_bit, name):
    flip_bit(workspace.artifacts / "chunks/toy-smoke/phase1" / name)
    with pytest.raises(IntegrityError, match=f"{name}: sha256"):
        registry.load_chunk("toy-smoke", chunk=1)
    assert registry.load_chunk("toy-smoke", chunk=2).index == 2


def test_a_chunk_alone_is_enough(workspace):
    folder = workspace.artifacts / "chunks/toy-smoke/phase1"
    (folder / "tokens.zarr/c/0/0").unlink()
    (folder / "provenance/chunk_000.parquet").unlink()
    assert registry.load_chunk("toy-smoke", chunk=1).index == 1
    with pytest.raises(StoreUnavailable, match=r"no artifacts/chunks/toy-smoke/phase1/tokens.zarr/c/0/0"):
        registry.load_chunk("toy-smoke", chunk=0)


def test_resolve_moves_nothing_and_hashes_everything(workspace):
    artifact = registry.resolve("toy-smoke", ckpt=1)
    assert artifact.location == "artifacts/checkpoints/toy-smoke/phase1/ckpt_001"
    assert {"model.safetensors", "optimizer.safetensors", "state.json"} <= {f.path for f in artifact.files}
    only = registry.resolve("toy-smoke", ckpt=1, kind="optimizer")
    assert [f.path for f in only.files] == ["optimizer.safetensors"]


def test_resolve_wants_exactly_one_index(workspace):
    with pytest.raises(InvalidId, match="expected exactly one"):
        registry.resolve("toy-smoke")
    with pytest.raises(InvalidId, match="expected exactly one"):
        registry.resolve("toy-smoke", ckpt=1, chunk=1)


def test_ls_leaves_gaps_out(workspace):
    assert [str(i) for i in registry.ls("toy-smoke", "ckpt")] == [f"toy-smoke/ckpt-{i}" for i in range(3)]
    assert len(registry.ls("toy-smoke")) == 4 * 3
    assert {i.kind for i in registry.ls("amber")} == {"ckpt", "chunk"}
    with pytest.raises(InvalidId, match="read kind 'weights'"):
        registry.ls("toy-smoke", "weights")


def test_a_store_can_be_given(workspace, tmp_path):
    with use_store(Workspace(tmp_path)):
        assert "toy-smoke" not in registry.suites()
    assert "toy-smoke" in registry.suites()


def test_metrics_are_read_up_to_the_checkpoint_and_nothing_is_missing_unsaid(workspace, capsys):
    assert registry.load_metrics("toy-smoke", ckpt=1)["chunk"].unique().sort().to_list() == [0, 1]
    (workspace.artifacts / "metrics/toy-smoke/phase1/chunk_000.jsonl").unlink()
    assert registry.load_metrics("toy-smoke")["chunk"].unique().sort().to_list() == [1, 2]
    assert "1 of 3 metric files are not in this workspace" in capsys.readouterr().err
    with pytest.raises(StoreUnavailable, match="toy-smoke/log-0 is not in this workspace"):
        registry.load_metrics("toy-smoke", ckpt=1)


@pytest.mark.parametrize("spoil", [lambda text: text.replace("3.0", "2.0"), lambda text: text[: len(text) // 2]])
def test_an_altered_or_cut_log_is_refused(workspace, spoil):
    path = workspace.artifacts / "metrics/toy-smoke/phase1/chunk_001.jsonl"
    path.write_text(spoil(path.read_text()))
    for read in (lambda: registry.load_metrics("toy-smoke"), registry.checkpoint("toy-smoke", ckpt=2).metrics):
        with pytest.raises(IntegrityError, match=r"chunk_001\.jsonl: sha256 .*, expected"):
            read()
    assert registry.load_metrics("toy-smoke", ckpt=0).height == 2


def test_a_log_is_resolved_with_the_hash_that_its_ledger_names(workspace):
    (entry,) = registry.resolve("toy-smoke", ckpt=2, kind="log").files
    path = workspace.artifacts / "metrics/toy-smoke/phase2/chunk_002.jsonl"
    assert (entry.path, entry.bytes, entry.sha256) == (path.name, path.stat().st_size, sha256_file(path))


def test_the_log_of_a_fine_tuned_suite_is_checked_against_its_manifest(workspace):
    folder = workspace.artifacts / "metrics/amber-chat-mini"
    write_bytes(folder / "chunk_000.jsonl", b'{"loss": 1.5}\n')
    write_manifest(folder, {"suite": "amber-chat-mini"})
    assert registry.load_metrics("amber-chat-mini")["loss"].to_list() == [1.5]
    (folder / "chunk_000.jsonl").write_bytes(b'{"loss": 1.4}\n')
    with pytest.raises(IntegrityError, match="sha256"):
        registry.load_metrics("amber-chat-mini")


def test_a_ledger_that_a_run_is_writing_is_read_and_a_broken_one_named(workspace):
    ledger = workspace.artifacts / "ledgers/toy-smoke/phase1/ledger.jsonl"
    whole = ledger.read_text()
    ledger.write_text(whole + '{"event": "chunk_fin')
    assert registry.load_metrics("toy-smoke").height == 6
    ledger.write_text(whole + "nonsense\n")
    with pytest.raises(IntegrityError, match=r"ledger\.jsonl: a line is no event"):
        registry.load_metrics("toy-smoke")


def test_a_torn_log_without_a_ledger_is_named_and_said_to_be_unchecked(workspace, capsys):
    path = workspace.artifacts / "metrics/toy-smoke/phase1/chunk_000.jsonl"
    path.write_text(path.read_text()[:-30])
    (workspace.artifacts / "ledgers/toy-smoke/phase1/ledger.jsonl").unlink()
    with pytest.raises(IntegrityError, match=r"chunk_000.jsonl: not one JSON object a line"):
        registry.load_metrics("toy-smoke")
    assert "2 of 3 metric files were NOT checked" in capsys.readouterr().err


def test_the_workspace_is_found_from_below_and_by_its_variable(workspace, monkeypatch, tmp_path):
    monkeypatch.chdir(workspace.artifacts / "index")
    assert Workspace.find() == workspace
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match=r"no dvc\.yaml in"):
        registry.load("amber-mini", ckpt=0)
    monkeypatch.setenv("LLM360_HOME", str(workspace.root))
    assert registry.checkpoint("toy-smoke", ckpt=1).step == 4
