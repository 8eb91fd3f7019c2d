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
# Plumbing whose change cannot change an artifact: messages, progress, errors, atomic writes, reading of parameters.
PLUMBING = {"llm360/errors.py", "llm360/progress.py", "llm360/files.py", "llm360/config.py"}
PACKAGES = ("llm360", "registry", "analyses", "stages")


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the project's files that a file imports, directly or not, relative to the root."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *[f"{node.module}.{a.name}" for a in node.names]]
        for name in names:
            if name.split(".")[0] in PACKAGES and (ROOT / f"{name.replace('.', '/')}.py").is_file():
                found.add(f"{name.replace('.', '/')}.py")
    return frozenset(found | {f for g in found for f in imports(ROOT / g) if ROOT / g != path})


def stage_body(name: str) -> dict:
    return STAGES[name].get("do", STAGES[name])


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_all_the_code_that_it_imports(name):
    body = stage_body(name)
    module = re.search(r"python -m stages\.(\w+)", body["cmd"]).group(1)
    script = f"stages/{module}.py"
    deps = body["deps"]
    needed = {script, *imports(ROOT / script)} - PLUMBING
    missing = {f for f in needed if not any(f == d or f.startswith(f"{d}/") for d in deps)}
    assert not missing


@pytest.mark.parametrize("name", STAGES)
def test_every_code_dependency_exists(name):
    for dep in stage_body(name)["deps"]:
        if not dep.startswith("artifacts/") and "$" not in dep:
            assert (ROOT / dep).exists(), dep
