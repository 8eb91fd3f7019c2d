"""Laws of many ranks, on gloo: they run ``_ranks.laws`` once in each world, and leave files to look at."""

from __future__ import annotations

import importlib.util
import json
import os
import traceback
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from llm360.errors import ConfigError
from llm360.train.distributed import World, join

SPEC = importlib.util.spec_from_file_location("_ranks", Path(__file__).with_name("_ranks.py"))
ranks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ranks)
WORLDS = {"2": 2, "4": 4, "2x2": 4}
HEAVY = ("torch._dynamo", "torch.distributed.fsdp", "llm360.model.hf", "transformers.models.llama.modeling_llama")
FAMILIES = ("amber", "crystal")


def as_rank(rank, size, port, work):
    """Run ``work`` in a fork that has torchrun's environment, and return its process id; forks import nothing."""
    if child := os.fork():
        return child
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run_ranks(size, work):
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    children = [as_rank(rank, size, store.port, work) for rank in range(size)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * size


def in_a_group_that_exists(work):
    dist.init_process_group("gloo")
    work()
    assert dist.is_initialized()


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Return the folder in which each world left what it saw: 1, 2 and 2 again, 4, and 2 copies of 2 ranks."""
    root = tmp_path_factory.mktemp("worlds")
    torch.set_num_threads(1)  # forking is safe only when torch has started no other threads
    for module in HEAVY:
        importlib.import_module(module)
    run_ranks(2, lambda: ranks.laws(root / "2"))
    run_ranks(2, lambda: ranks.laws(root / "2again"))
    run_ranks(4, lambda: ranks.laws(root / "4", saved=root / "2"))
    run_ranks(4, lambda: in_a_group_that_exists(lambda: ranks.laws(root / "2x2", replicas=2, saved=root / "2")))
    ranks.laws(root / "1", saved=root / "2")
    return root


def seen(worlds, name):
    return json.loads((worlds / name / "seen.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_norm_are_those_of_one_process(worlds, name, family):
    one, many = (torch.tensor(seen(worlds, n)[family]["steps"]) for n in ("1", name))
    assert one.shape == (3, 3)
    assert (one[:, 1] > 0.2).all()  # every gradient was clipped
    torch.testing.assert_close(many, one, rtol=1e-5, atol=0)
    torch.testing.assert_close(many[:, 2], torch.full((3,), 0.1), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_and_moments_are_those_of_one_process(worlds, name, family):
    one, many = (load_file(worlds / n / f"{family}.safetensors") for n in ("1", name))
    assert one.keys() == many.keys()
    for key, tensor in one.items():
        assert tensor.dtype == many[key].dtype == torch.float32
        torch.testing.assert_close(many[key], tensor, rtol=1e-3, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("family", FAMILIES)
def test_two_runs_of_two_ranks_are_equal_to_the_last_bit(worlds, family):
    one, two = ((worlds / n / f"{family}.safetensors").read_bytes() for n in ("2", "2again"))
    assert one == two
    assert seen(worlds, "2") == seen(worlds, "2again")


@pytest.mark.parametrize("name", ["1", "4", "2x2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_two_ranks_saved_is_restored_exactly_elsewhere(worlds, name, family):
    saved = load_file(worlds / "2" / f"{family}.safetensors")
    again = load_file(worlds / name / f"{family}-again.safetensors")
    assert saved.keys() == again.keys()
    assert all(torch.equal(saved[key], again[key]) for key in saved)
    one, other = (torch.tensor(seen(worlds, n)[family]["next"]) for n in ("1", name))
    torch.testing.assert_close(other, one, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["1", *WORLDS])
def test_parts_of_any_shape_make_the_whole_again(worlds, name):
    assert seen(worlds, name)["round_trips"] == [WORLDS.get(name, 1)]


@pytest.mark.parametrize("name", ["1", *WORLDS])
def test_tied_weights_stay_tied(worlds, name):
    assert all(seen(worlds, name)[family]["tied"] for family in FAMILIES)


@pytest.mark.parametrize("name", ["1", *WORLDS])
def test_activation_checkpointing_changes_nothing(worlds, name):
    assert seen(worlds, name)["checkpointing"] == seen(worlds, name)["amber"]["steps"]


@pytest.mark.parametrize("name", ["1", *WORLDS])
def test_sums_are_sums_and_rank_0_is_heard(worlds, name):
    size = WORLDS.get(name, 1)
    assert seen(worlds, name)["sum"] == [size, sum(10.0**r for r in range(size)), pytest.approx(size * 1e-9)]
    assert seen(worlds, name)["share"] == {"rank": 0, "text": "é"}


def world(rank, size):
    return World(rank, size, 1, torch.device("cpu"), None)


@given(size=st.integers(1, 64), part=st.integers(1, 64))
def test_the_ranks_rows_are_the_batch_in_order(size, part):
    slices = [world(rank, size).rows(size * part) for rank in range(size)]
    assert slices[0].start == 0
    assert slices[-1].stop == size * part
    assert all(a.stop == b.start for a, b in pairwise(slices))
    assert {s.stop - s.start for s in slices} == {part}


def test_a_batch_that_the_ranks_do_not_divide_is_refused():
    with pytest.raises(ConfigError, match=r"batch_size is 6 rows and there are 4 ranks, .*: change"):
        world(0, 4).rows(6)


def test_alone_the_world_has_one_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with join() as one:
        assert (one.rank, one.size, one.replicas, one.mesh, one.leads) == (0, 1, 1, None, True)
        assert not dist.is_initialized()
        tensor = torch.zeros(3)
        whole = one.whole(tensor)
        tensor += 1
        assert whole.tolist() == [0, 0, 0]


@pytest.mark.parametrize("replicas", [0, 3, 8])
def test_replicas_that_do_not_divide_the_ranks_are_refused(monkeypatch, replicas):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=f"replicas is {replicas} and there are 4 ranks"), join(replicas=replicas):
        pass
    assert not dist.is_initialized()
