from __future__ import annotations

import ctypes
import dataclasses
import errno
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stages._stage
from llm360.code import code_sha256
from llm360.errors import ConfigError, DataError
from stages._stage import _lock, mapping, one_line_errors, persistent, section, stage


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    steps: int


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("pretrain:\n  amber-mini:\n    steps: 3\n")
    return tmp_path


def test_a_section_becomes_its_dataclass(project):
    assert section("pretrain.amber-mini", Params) == Params(steps=3)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pretrain.amber-mni", r"no section 'pretrain\.amber-mni'; did you mean 'amber-mini'"),
        ("pretrian", r"no section 'pretrian'; did you mean 'pretrain'"),
    ],
)
def test_an_unknown_section_has_a_hint(project, path, message):
    with pytest.raises(ConfigError, match=message):
        mapping(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("pretrain: [\n", "not YAML"), ("pretrain: 5\n", "pretrain: read 5, expected a mapping")],
)
def test_params_that_are_no_mapping_are_refused(project, text, message):
    Path("params.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        mapping("pretrain")


@pytest.mark.parametrize("threads", ["two", "0", "-1"])
def test_a_thread_count_is_a_number_above_zero(project, threads):
    Path("params.yaml").write_text(
        f"runtime: {{workers: 1, ranks: 1, replicas: 1, trackers: [], threads: {threads}}}\n"
    )
    with pytest.raises(ConfigError, match=r"threads"):
        stages._stage.threads()


@pytest.mark.parametrize(("module", "flag"), [("pretrain", "--phase"), ("tokenize", "--phase"), ("init", "--suite")])
def test_an_unknown_key_is_one_line_from_every_entry(project, capsys, module, flag):
    with pytest.raises(SystemExit):
        importlib.import_module(f"stages.{module}").main([flag, "nope"])
    assert capsys.readouterr().err.startswith("error: ConfigError: params.yaml: no section")


def test_a_folder_that_cannot_be_written_is_one_line(project, capsys):
    with pytest.raises(SystemExit), one_line_errors():
        raise PermissionError(errno.EACCES, "Permission denied", "artifacts")
    assert capsys.readouterr().err == "error: artifacts: Permission denied; make it writable, or run as its owner\n"


def test_a_full_disk_is_one_line(project, capsys):
    with pytest.raises(SystemExit), one_line_errors():
        raise OSError(errno.ENOSPC, "No space left on device", "artifacts/.locks/x.lock")
    assert capsys.readouterr().err == (
        "error: artifacts/.locks/x.lock: No space left on device; free some space and run the same command again\n"
    )


def test_without_params_the_command_that_makes_them_is_named(project):
    Path("params.yaml").unlink()
    with pytest.raises(ConfigError, match=r"python -m stages\.compose"):
        mapping("pretrain")


def test_an_error_is_one_line_and_exit_code_1(project, capsys):
    with pytest.raises(SystemExit) as raised, stage(Path("artifacts/x")):
        raise DataError("x: 3 read, 4 expected; add one")
    assert raised.value.code == 1
    assert capsys.readouterr().err == "error: DataError: x: 3 read, 4 expected; add one\n"


def test_a_second_writer_is_refused_with_the_first_ones_pid(project, capsys, monkeypatch):
    monkeypatch.setattr(stages._stage, "LOCK_SECONDS", 0.2)
    with _lock(Path("artifacts/x")):
        child = multiprocessing.get_context("fork").Process(target=_enter)
        child.start()
        child.join()
        assert child.exitcode == 1
    with _lock(Path("artifacts/x")):
        pass


def _enter():
    with stage(Path("artifacts/x")):
        pass


@pytest.fixture
def adopter():
    """Make this process, and no init of another session, the one that adopts orphans, as in a container."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    yield
    prctl(36, 0)


@pytest.mark.parametrize("imports", ["before", "after"])
def test_a_stage_whose_parent_died_before_it_began_does_not_begin(project, adopter, imports):
    """Seen twice: dvc killed while its stage was still importing; the stage then trained on as an orphan."""
    program = "import stages\n" if imports == "before" else ""
    program += "import pathlib, time\nprint(__import__('os').getpid(), flush=True)\ntime.sleep(1)\n"
    program += "from stages._stage import stage\nwith stage(pathlib.Path('artifacts/x')):\n"
    program += " pathlib.Path('begun').touch()\n"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}])"
    env, another_session = _env() | {"DVC_STAGE": "pretrain@x"}, imports == "after"
    command = [sys.executable, "-c", parent]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=another_session)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(100):
        if not _alive(child):
            break
        time.sleep(0.1)
    assert not _alive(child)
    assert not Path("begun").exists()


def test_a_process_that_is_about_to_be_gone_is_waited_for(project):
    program = "import pathlib, time\nfrom stages._stage import _lock\nwith _lock(pathlib.Path('artifacts/x')):\n"
    program += " print('held', flush=True)\n time.sleep(0.5)\n"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=_env())
    assert process.stdout.readline() == "held\n"
    started = time.monotonic()
    with _lock(Path("artifacts/x")):
        assert time.monotonic() - started > 0.2
    assert process.wait() == 0
    process.stdout.close()


def test_a_stage_that_dvc_runs_begins(project):
    program = "import pathlib\nfrom stages._stage import stage\nwith stage(pathlib.Path('artifacts/x')):\n"
    program += " pathlib.Path('begun').touch()\n"
    subprocess.run([sys.executable, "-c", program], env=_env() | {"DVC_STAGE": "pretrain@x"}, check=True)
    assert Path("begun").exists()


def test_a_stage_dies_with_the_process_that_started_it(project):
    program = "import pathlib, time\nfrom stages._stage import stage\nwith stage(pathlib.Path('artifacts/x')):\n"
    program += " print(__import__('os').getpid(), flush=True)\n time.sleep(60)"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=_env())
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(50):
        if not _alive(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the stage outlived its parent")


def _env():
    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def _alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_items_of_the_same_recipe_stay_and_others_go(project, capsys):
    folder = Path("artifacts/x")
    persistent(folder, {"lr": 1e-3, "data": "a"})
    (folder / "item").write_text("1")
    persistent(folder, {"data": "a", "lr": 1e-3})
    assert (folder / "item").is_file()
    persistent(folder, {"lr": 2e-3, "data": "a"})
    assert not (folder / "item").exists()
    assert "made by another recipe (lr: 0.001 -> 0.002); building it anew" in capsys.readouterr().err


def test_what_makes_another_recipe_is_named_leaf_by_leaf(project, capsys):
    folder = Path("artifacts/x")
    schedule = {"kind": "cosine", "peak": 3e-3, "end": 3e-4, "warmup_steps": 4, "total_steps": 16}
    persistent(folder, {"params": {"suite": "amber", "schedule": schedule}, "code": "a"})
    persistent(folder, {"params": {"suite": "amber", "schedule": schedule | {"total_steps": 24}}, "code": "a"})
    assert "another recipe (params.schedule.total_steps: 16 -> 24); building" in capsys.readouterr().err
    persistent(folder, {"params": {"suite": "amber", "schedule": dict.fromkeys(schedule, 0)}, "code": "b"})
    said = capsys.readouterr().err
    assert '(code: "a" -> "b", params.schedule.end: 0.0003 -> 0, ' in said
    assert "params.schedule.peak: 0.003 -> 0 and 2 more); building" in said


def test_items_of_unknown_origin_are_not_reused(project, capsys):
    Path("artifacts/x").mkdir(parents=True)
    Path("artifacts/x/item").write_text("1")
    persistent(Path("artifacts/x"), {"lr": 1})
    assert not Path("artifacts/x/item").exists()
    assert "no fingerprint" in capsys.readouterr().err


def test_the_code_hash_covers_folders_and_files():
    assert code_sha256("llm360/train") != code_sha256("llm360/model")
    assert code_sha256("llm360/files.py") == code_sha256("llm360/files.py")
