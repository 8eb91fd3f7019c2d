"""The Hub store without a network: what the cache on this machine can answer, and clear words for the rest."""

from __future__ import annotations

import hashlib
import shutil

import pytest

import registry
from llm360.errors import IntegrityError, InvalidId, NotReleased, StoreUnavailable
from registry import use_store
from registry.hub import HubStore

COMMIT = "c" * 40


@pytest.fixture
def cache(tmp_path, built):
    """A Hub cache that holds one branch of Amber, filled with a tiny model."""
    root = tmp_path / "cache" / "models--LLM360--Amber"
    snapshot = root / "snapshots" / COMMIT
    for folder in (root / "refs", root / "blobs", snapshot):
        folder.mkdir(parents=True)
    (root / "refs" / "ckpt_355").write_text(COMMIT)
    source = built / "artifacts/checkpoints/toy-smoke/phase1/ckpt_001"
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, snapshot / name)
    weights = (source / "model.safetensors").read_bytes()
    blob = root / "blobs" / hashlib.sha256(weights).hexdigest()
    blob.write_bytes(weights)
    (snapshot / "model.safetensors").symlink_to(blob)
    return tmp_path / "cache"


@pytest.fixture
def hub(cache):
    with use_store(HubStore(cache=cache)):
        yield cache


def test_a_cached_branch_loads_offline_pinned_to_its_commit(hub):
    artifact = registry.resolve("amber", ckpt=355)
    assert (artifact.location, artifact.commit) == ("hf://LLM360/Amber@ckpt_355", COMMIT)
    assert [f.path for f in artifact.files] == ["model.safetensors"]
    model = registry.load("amber", ckpt=355)
    assert (model.training, str(model.dtype)) == (False, "torch.float32")


def test_a_cached_checkpoint_knows_what_the_suite_knows(hub):
    checkpoint = registry.checkpoint("amber", ckpt=355)
    assert (checkpoint.step, checkpoint.tokens_seen) == (356 * 762, 356 * 762 * 2240 * 2048)
    assert checkpoint.chunks_seen() == list(range(356))
    for part in (checkpoint.optimizer, checkpoint.state, checkpoint.metrics):
        with pytest.raises(NotReleased, match="amber/"):
            part()


def test_altered_bytes_in_the_cache_are_named(hub, flip_bit):
    flip_bit(next((hub / "models--LLM360--Amber/blobs").iterdir()))
    with pytest.raises(IntegrityError, match=r"model\.safetensors: sha256"):
        registry.load("amber", ckpt=355)


def test_offline_resolve_still_gives_the_address(hub):
    artifact = registry.resolve("amber", ckpt=359)
    assert (artifact.location, artifact.commit, artifact.files) == ("hf://LLM360/Amber@main", None, ())


def test_offline_and_not_cached_says_so_with_the_command(hub):
    with pytest.raises(
        StoreUnavailable, match=r"ckpt_354 of LLM360/Amber, which is not cached.*registry pull amber/ckpt-354"
    ):
        registry.load("amber", ckpt=354)


def test_a_chunk_of_the_hub_says_where_it_is_and_what_brings_it(hub):
    with pytest.raises(
        StoreUnavailable,
        match=r"train_003\.jsonl of datasets/LLM360/AmberDatasets, which is not cached.*`registry pull amber/chunk-3`",
    ):
        registry.load_chunk("amber", chunk=3)


def test_crystal_lists_what_is_known_and_says_that_it_is_not_all(hub, capsys):
    assert len(registry.ls("crystal", "ckpt")) == 13
    assert "13 checkpoints are known here, more are there" in capsys.readouterr().err
    with pytest.raises(InvalidId, match="crystal has 143 checkpoints, of which 13 are known offline"):
        registry.load("crystal")
    with pytest.raises(StoreUnavailable, match="only the Hub knows whether it exists"):
        registry.load("crystal", ckpt=3)
    location = registry.resolve("crystal", ckpt="CrystalCoder_phase1_checkpoint_055500").location
    assert location == "hf://LLM360/Crystal@CrystalCoder_phase1_checkpoint_055500"
