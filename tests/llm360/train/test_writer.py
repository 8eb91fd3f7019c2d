from __future__ import annotations

import threading

import pytest

from llm360.train.writer import Writer


def test_work_is_done_in_order_beside_the_caller():
    done, go = [], threading.Event()
    with Writer() as writer:
        writer.submit(lambda: (go.wait(5), done.append(1)))
        assert done == []
        go.set()
        writer.submit(lambda: done.append(2))
        writer.wait()
        assert done == [1, 2]


def test_an_error_reaches_the_next_call_once():
    def fail():
        raise OSError("no room")

    with Writer() as writer:
        writer.submit(fail)
        with pytest.raises(OSError, match="no room"):
            writer.submit(lambda: None)
        writer.wait()


def test_an_error_of_the_last_work_is_not_lost():
    def fail():
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"), Writer() as writer:
        writer.submit(fail)


def test_what_is_being_written_ends_before_an_error_of_the_block_is_shown():
    done = []
    with pytest.raises(ValueError, match="mine"), Writer() as writer:
        writer.submit(lambda: done.append(1))
        raise ValueError("mine")
    assert done == [1]
