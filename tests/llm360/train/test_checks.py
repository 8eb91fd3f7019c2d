"""What does not fit together is refused before anything is written."""

from __future__ import annotations

import dataclasses
import json

import pytest

from llm360.errors import ConfigError, DataError, LLM360Error
from llm360.files import entries
from llm360.train.checks import check_inputs
from llm360.train.distributed import World


@pytest.fixture
def refused(params, start, chunks, alone):
    """Return a function that says how inputs are refused."""

    def refuse(**changed):
        given = {"params": params, "start": start, "chunks": chunks, "world": alone} | changed
        with pytest.raises(LLM360Error) as found:
            check_inputs(given.pop("params"), **given)
        return found.value

    return refuse


def test_ranks_that_do_not_divide_the_batch(refused, alone):
    error = refused(world=World(0, 2, 1, alone.device, None))
    assert isinstance(error, ConfigError)
    assert "batch_size is 3 rows and there are 2 ranks" in str(error)


def test_chunks_of_another_length(refused, tmp_path, make_chunks, chunk_params):
    other = make_chunks(tmp_path / "long", dataclasses.replace(chunk_params, sequence_length=32, rows_per_chunk=4))
    error = refused(chunks=other)
    assert isinstance(error, DataError)
    assert "rows of 32 tokens, but the model of" in str(error)
    assert "was built for 16; make sequence_length the same" in str(error)


def test_chunks_of_another_tokenizer(refused, tmp_path, initial):
    error = refused(start=initial(tmp_path / "init", "amber", tokenizer_sha256="f" * 64))
    assert isinstance(error, DataError)
    assert "but" in str(error)
    assert "was built with ffffffffffff; tokenize again" in str(error)


def test_chunks_of_another_phase(refused, params):
    error = refused(params=dataclasses.replace(params, phase="phase2"))
    assert isinstance(error, ConfigError)
    assert "chunks of tiny, phase pretrain, expected tiny, phase phase2" in str(error)


def test_a_checkpoint_of_another_suite(refused, tmp_path, initial):
    error = refused(start=initial(tmp_path / "init", "amber", suite="other", ckpt=4))
    assert isinstance(error, ConfigError)
    assert "a checkpoint of other/ckpt-4, expected one of tiny" in str(error)
    assert "branch_from: other@4" in str(error)


def test_numbers_that_leave_a_gap(refused, tmp_path, make_chunks, chunk_params):
    later = make_chunks(tmp_path / "later", dataclasses.replace(chunk_params, first_chunk=2))
    error = refused(chunks=later)
    assert isinstance(error, ConfigError)
    assert "begins with chunk 2, but" in str(error)
    assert "start from checkpoint 1, or make first_chunk 0" in str(error)


def test_a_refusal_leaves_everything_as_it_was(tmp_path, whole, train):
    before = entries(whole)
    with pytest.raises(ConfigError):
        train(whole, phase="other")
    assert entries(whole) == before


def test_a_branch_may_start_from_the_checkpoint_that_it_names(params, tmp_path, initial, chunks, alone):
    start = initial(tmp_path / "init", "amber", suite="other", ckpt=4)
    check_inputs(dataclasses.replace(params, branch="other/ckpt-4"), start=start, chunks=chunks, world=alone)
    assert json.loads((start / "manifest.json").read_text())["suite"] == "other"
