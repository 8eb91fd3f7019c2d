from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llm360.errors import DataError, WorkerError
from llm360.files import write_json
from llm360.processes import Workers, fan_out

TASKS = list(range(12))


def square(number: int) -> int:
    time.sleep(0.002 * (number % 3))
    return number * number


def refuse(number: int) -> int:
    if number == 5:
        raise DataError("task 5: read 5, expected another; do not ask")
    return number


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def linger(folder: str) -> None:
    write_json(Path(folder) / f"{os.getpid()}.json", os.getppid())
    time.sleep(60)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_task_comes_back_once_with_its_own_result(workers):
    found = list(fan_out(square, TASKS, workers=workers))
    assert sorted(found) == [(n, n * n) for n in TASKS]


def test_one_worker_keeps_the_order():
    assert [task for task, _ in fan_out(square, TASKS, workers=1)] == TASKS


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_task_is_raised_as_it_is(workers):
    with pytest.raises(DataError, match="task 5: read 5, expected another; do not ask"):
        list(fan_out(refuse, TASKS, workers=workers))


def test_a_killed_worker_is_said_and_does_not_hang():
    with pytest.raises(WorkerError, match="a worker process was killed, perhaps for want of memory"):
        list(fan_out(die, TASKS, workers=2))


def test_a_worker_killed_before_there_is_work_is_said_as_well():
    with Workers(2) as pool:
        pool.prepare(die, 0)
        time.sleep(2)
        with pytest.raises(WorkerError, match="a worker process was killed"):
            list(pool.run(square, TASKS))


@pytest.mark.parametrize("after_seconds", [0.05, 0.2, 0.4])
def test_workers_whose_parent_dies_while_they_import_end_as_well(tmp_path, after_seconds):
    """Seen: they waited for ever, on a queue that they held open themselves."""
    program = "import time\nfrom llm360.processes import Workers\nfrom math import sqrt\n"
    program += "if __name__ == '__main__':\n pool = Workers(2)\n pool.prepare(sqrt, 4)\n"
    program += " print(*[p.pid for p in pool._pool._processes.values()], flush=True)\n time.sleep(60)\n"
    (tmp_path / "program.py").write_text(program)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen([sys.executable, tmp_path / "program.py"], env=env, stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    time.sleep(after_seconds)
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(workers) == 2
    wait_for(lambda: [p for p in workers if not Path(f"/proc/{p}").exists() or _is_zombie(p)], count=2)


def test_nothing_to_do_is_done():
    assert list(fan_out(square, [], workers=2)) == []


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """Killed, it cannot end them itself; left alone they would write on beside the next run."""
    program = "from tests_llm360_test_processes import linger\nfrom llm360.processes import fan_out\n"
    program += "if __name__ == '__main__':\n"
    program += f" list(fan_out(linger, [{str(tmp_path)!r}] * 4, workers=2))\n"
    (tmp_path / "tests_llm360_test_processes.py").write_text(Path(__file__).read_text())
    (tmp_path / "program.py").write_text(program)
    path = f"{tmp_path}:{Path(__file__).resolve().parents[2]}"
    process = subprocess.Popen([sys.executable, tmp_path / "program.py"], env=os.environ | {"PYTHONPATH": path})
    workers = wait_for(lambda: [int(p.stem) for p in tmp_path.glob("[0-9]*.json")], count=2)
    process.kill()
    process.wait()
    assert wait_for(lambda: [p for p in workers if not Path(f"/proc/{p}").exists() or _is_zombie(p)], count=2)


def wait_for(look, *, count):
    for _ in range(200):
        if len(found := look()) >= count:
            return found
        time.sleep(0.1)
    pytest.fail(f"waited 20 s for {count}")


def _is_zombie(pid):
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
