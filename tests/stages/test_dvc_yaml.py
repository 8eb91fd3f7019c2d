"""What dvc.yaml says of the code must be true: a stage depends on all that it imports of this project."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# Plumbing whose change cannot change an artifact: messages, progress, errors, atomic writes, who does the work,
# reading of parameters, live metrics, hashes of code.
PLUMBING = {
    f"llm360/{name}.py"
    for name in ("errors", "progress", "files", "processes", "config", "code", "launch", "trackers", "flops")
}
# The registry only finds and checks bytes; what it hands out is read by the code that loads checkpoints.
LOADING = "llm360/checkpoint.py"
PACKAGES = ("llm360", "registry", "analyses", "stages")


@cache
def direct_imports(script: str) -> frozenset[str]:
    """Return the project's files that a file imports, anywhere in it, relative to the root."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / script).read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *[f"{node.module}.{a.name}" for a in node.names]]
        paths = [f"{name.replace('.', '/')}.py" for name in names if name.split(".")[0] in PACKAGES]
        found |= {p for p in paths if (ROOT / p).is_file()} | ({LOADING} if "registry" in names else set())
    return frozenset(found)


def imports(script: str) -> set[str]:
    """Return the files that a script needs, directly or not, itself included."""
    needed, todo = set(), [script]
    while todo:
        if (current := todo.pop()) not in needed:
            needed.add(current)
            todo += direct_imports(current) if not current.startswith("registry/") else ()
    return needed


def stage_body(name: str) -> dict:
    return STAGES[name].get("do", STAGES[name])


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_all_the_code_that_it_imports(name):
    body = stage_body(name)
    module = re.search(r"python -m stages\.(\w+)", body["cmd"]).group(1)
    script = f"stages/{module}.py"
    deps = body["deps"]
    needed = {f for f in imports(script) - PLUMBING if not f.startswith("registry/") or f == "registry/index.py"}
    missing = {f for f in needed if not any(f == d or f.startswith(f"{d}/") for d in deps)}
    assert not missing


@pytest.mark.parametrize("name", STAGES)
def test_every_code_dependency_exists(name):
    for dep in stage_body(name)["deps"]:
        if not dep.startswith("artifacts/") and "$" not in dep:
            assert (ROOT / dep).exists(), dep
