"""The same build on a Ray cluster of two nodes, which this machine plays."""

from __future__ import annotations

import sys

import pytest

from llm360.data.mixture import ChunkParams, Fim, Ingredient
from llm360.errors import DataError
from llm360.files import entries
from llm360.processes import RAY_ADDRESS, fan_out

FIM = Fim(rate=0.5, spm_rate=0.5, prefix="<|fim_prefix|>", middle="<|fim_middle|>", suffix="<|fim_suffix|>")
PARAMS = ChunkParams(
    suite="tiny",
    phase="p",
    folder="tiny",
    tokenizer="tiny",
    sequence_length=32,
    first_chunk=0,
    chunks=6,
    rows_per_chunk=40,
    validation_rows=2,
    seed=7,
    mixture={
        "arxiv": Ingredient(weight=1.0, part="all", epochs=1),
        "book": Ingredient(weight=2.0, part="all", epochs=1, fim=FIM),
    },
)
STORE = 80_000_000  # bytes of a node's object store: results are small


@pytest.fixture(scope="module")
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    cluster.add_node(**node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RAY_ADDRESS, cluster.address)
        patch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
        yield cluster
    ray.shutdown()
    cluster.shutdown()


def node(_: int) -> str:
    import time

    import ray

    time.sleep(0.3)
    return str(ray.get_runtime_context().get_node_id())


def refuse(number: int) -> int:
    raise DataError(f"task {number}: read nothing, expected something; add text")


def test_both_nodes_work_and_the_bytes_are_those_of_a_local_build(tmp_path, make_chunks, cluster):
    assert len({found for _, found in fan_out(node, range(8), workers=1)}) == 2
    ray_made = make_chunks(tmp_path / "ray", PARAMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(RAY_ADDRESS)
        local = make_chunks(tmp_path / "local", PARAMS)
    assert entries(ray_made.folder) == entries(local.folder)


def test_an_error_of_a_task_is_raised_as_it_is(cluster):
    with pytest.raises(DataError, match="task 3: read nothing, expected something; add text"):
        list(fan_out(refuse, [3], workers=1))
