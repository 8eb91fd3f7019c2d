from __future__ import annotations

import importlib
import json
import sys

import pytest

import registry
from llm360.errors import IntegrityError, RegistryError, UnknownSuite
from registry import Workspace, use_store
from registry.catalog import discover

GOOD = """from registry.suite import Phase, Suite
SUITE = Suite(name={name!r}, title="t", phases=(Phase(name="p", first=0, last=1),))
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    name = f"suites_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def write(file: str, text: str):
        (tmp_path / name / file).write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[module]


def test_adding_a_suite_is_adding_a_file(package):
    assert list(discover(package("my_suite.py", GOOD.format(name="my-suite")))) == ["my-suite"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "broken: cannot be imported .*no_such_module.*mend that file"),
        ("def f(:", "broken: cannot be imported .*SyntaxError"),
        ("suite = 1", "broken: SUITE is None, expected one constant"),
        (GOOD.format(name="other"), r"broken.py: its SUITE is named 'other', expected 'broken'"),
    ],
)
def test_a_broken_file_is_loud(package, text, message):
    with pytest.raises(RegistryError, match=message):
        discover(package("broken.py", text))


def test_every_released_suite_is_there(tmp_path):
    with use_store(Workspace(tmp_path)):
        assert registry.suites() == [
            "amber", "amber-chat-mini", "amber-mini", "amber-safe-mini", "crystal", "crystal-mini",
        ]  # fmt: skip
        assert callable(registry.suites)  # the folder of the same name does not hide it


def test_phases_follow_one_another():
    for suite in map(registry.suite, ("amber", "crystal", "amber-mini", "crystal-mini")):
        for before, after in zip(suite.phases, suite.phases[1:], strict=False):
            assert after.first == before.last + 1


def test_unknown_suite_names_the_nearest():
    with pytest.raises(UnknownSuite, match="unknown suite 'amber-mni'; did you mean 'amber-mini'"):
        registry.suite("amber-mni")


@pytest.mark.parametrize("kind", ["chunks", "checkpoints"])
def test_a_suite_that_is_built_but_has_no_index_is_told_from_an_unknown_one(tmp_path, kind):
    (tmp_path / "artifacts" / kind / "mine").mkdir(parents=True)
    needed = rf"unknown suite 'mine'; artifacts/{kind}/mine is here but its index is not: dvc repro index@mine \(the"
    with use_store(Workspace(tmp_path)):
        with pytest.raises(UnknownSuite, match=needed):
            registry.suite("mine")
        with pytest.raises(UnknownSuite, match=r"unknown suite '\.'; "):
            registry.suite(".")


def test_an_unknown_suite_outside_of_a_workspace_says_that_there_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM360_HOME", raising=False)
    with pytest.raises(UnknownSuite, match=r"unknown suite 'amber-mni'; did you mean 'amber-mini'.*; no dvc\.yaml in"):
        registry.suite("amber-mni")


def test_an_index_in_the_workspace_makes_a_suite(workspace):
    assert "toy-smoke" in registry.suites()
    assert [(p.name, p.first, p.last) for p in registry.suite("toy-smoke").phases] == [
        ("phase1", 0, 1),
        ("phase2", 2, 2),
    ]


def test_an_index_of_something_else_is_refused(workspace):
    path = workspace.artifacts / "index" / "toy-smoke.json"
    path.write_text(json.dumps({"format": "other"}))
    with pytest.raises(IntegrityError, match=r"toy-smoke.json: not an index of toy-smoke"):
        registry.suite("toy-smoke")
