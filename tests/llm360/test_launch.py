from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llm360 import launch as launching
from llm360.errors import ConfigError, TrainingError, WorkerError
from llm360.launch import in_ranks, launch, on_ray

HERE = str(Path(__file__).parent / "train")
START = "import sys; from llm360.launch import launch; sys.exit(launch('_ranks', sys.argv[1:], ranks=2))"


@pytest.fixture(autouse=True)
def ranks_module(monkeypatch):
    """The ranks find ``_ranks``."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))


def ends(how, folder, ranks=2):
    return launch("_ranks", ["ends", how, str(folder)], ranks=ranks)


def test_only_rank_0_is_heard_when_all_end_well(tmp_path, capfd):
    before = signal.getsignal(signal.SIGTERM)
    assert ends("well", tmp_path) == 0
    assert capfd.readouterr() == ("out 0\n", "")
    assert {path.name for path in tmp_path.iterdir()} == {"0.pid", "1.pid"}
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_every_rank_tells_is_shown_once(tmp_path, capfd):
    assert ends("told", tmp_path) == 3
    assert capfd.readouterr().err == "error: bad thing 0\n"


def test_the_first_rank_that_failed_is_shown_and_not_those_that_missed_it(tmp_path, capfd):
    assert ends("last_tells", tmp_path) == 3
    assert capfd.readouterr().err == "rank 1 of 2 failed:\nerror: bad thing 1\n"


def test_an_error_that_nobody_expected_is_shown_once_with_its_traceback(tmp_path, capfd):
    assert ends("bug", tmp_path) == 1
    shown = capfd.readouterr().err
    assert shown.startswith("rank 0 of 2 failed:\nTraceback")
    assert shown.endswith("ZeroDivisionError: of rank 0\n")
    assert shown.count("Traceback") == 1


def test_a_killed_rank_is_named(tmp_path, capfd):
    with pytest.raises(WorkerError, match=r"rank 1 of 2 was killed by SIGKILL, .* run the same command again"):
        ends("killed", tmp_path)
    assert capfd.readouterr().err == ""


def test_ranks_join_and_one_that_fails_ends_those_that_wait_for_it(capfd):
    assert launch("_ranks", ["join"], ranks=2) == 1
    shown = capfd.readouterr().err
    assert shown.startswith("rank 1 of 2 failed:\nTraceback")
    assert shown.endswith("TrainingError: the sum is 3.0\n")


@pytest.fixture
def saving(tmp_path):
    """Return the process that launched two ranks, which now wait for a signal."""
    process = subprocess.Popen([sys.executable, "-c", START, "ends", "saves", str(tmp_path)], stdout=subprocess.PIPE)
    until(lambda: all((tmp_path / f"{rank}.ready").exists() for rank in range(2)))
    yield process
    process.kill()
    process.wait()


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)


def running(folder, rank):
    """Whether a rank is alive: not gone, nor waiting to be reaped."""
    try:
        stat = Path(f"/proc/{(folder / f'{rank}.pid').read_text()}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_every_rank_save(tmp_path, saving, number):
    saving.send_signal(number)
    assert saving.wait(30) == 143
    assert all((tmp_path / f"{rank}.saved").exists() for rank in range(2))


def test_ranks_that_were_asked_one_by_one_wait_for_each_other(tmp_path, saving):
    for rank in range(2):
        os.kill(int((tmp_path / f"{rank}.pid").read_text()), signal.SIGTERM)
    assert saving.wait(30) == 143
    assert all((tmp_path / f"{rank}.saved").exists() for rank in range(2))


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not end a child with its parent")
def test_no_rank_outlives_the_process_that_launched_it(tmp_path, saving):
    saving.kill()
    until(lambda: not any(running(tmp_path, rank) for rank in range(2)))
    assert not list(tmp_path.glob("*.saved"))


def test_ranks_know_that_they_are(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert not in_ranks()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert in_ranks()


def test_more_ranks_than_gpus_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 ranks and 1 GPUs here"):
        ends("well", tmp_path)
    assert not list(tmp_path.iterdir())


class Failed(Exception):
    """As Ray tells of a run in which workers failed."""

    def __init__(self, **failures):
        super().__init__("Training failed\nTraceback of a worker")
        self.worker_failures = {int(rank[1:]): error for rank, error in failures.items()}


def test_of_rays_errors_the_one_raised_on_purpose_is_told(capfd):
    error = launching._on_ray_failed(Failed(r0=ConnectionError("peer"), r1=TrainingError("loss is nan")), 2)
    assert str(error) == "rank 1 of 2 on Ray: TrainingError: loss is nan"
    assert capfd.readouterr().err == ""


def test_an_error_on_ray_that_nobody_expected_is_shown_with_its_traceback(capfd):
    error = launching._on_ray_failed(Failed(r1=ZeroDivisionError("x")), 2)
    assert str(error) == "rank 1 of 2 on Ray: ZeroDivisionError: x"
    assert capfd.readouterr().err == "Training failed\nTraceback of a worker\n"


def test_a_run_that_ray_lost_can_be_run_again():
    assert (
        str(launching._on_ray_failed(Failed(), 2)) == "Ray lost the run (Training failed); run the same command again"
    )


@pytest.mark.pipeline
def test_ray_train_runs_the_ranks(monkeypatch, tmp_path):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.chdir(tmp_path)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with pytest.raises(WorkerError, match=r"rank 1 of 2 on Ray: TrainingError: the sum is 3\.0"):
            on_ray("_ranks", ["join"], ranks=2)
    finally:
        ray.shutdown()
    assert not list(tmp_path.iterdir())
