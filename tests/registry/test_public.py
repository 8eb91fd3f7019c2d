"""What ``import registry`` promises: the names of ``__all__``, and that it is light."""

from __future__ import annotations

import subprocess
import sys
import types

import registry

HEAVY = ("torch", "transformers", "polars", "zarr", "numpy", "huggingface_hub", "typer")


def test_all_equals_what_is_public():
    public = {n for n, v in vars(registry).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert public == set(registry.__all__)
    assert registry.__all__ == sorted(registry.__all__, key=lambda n: (n.islower(), n))


def test_import_and_listing_load_nothing_heavy():
    code = (
        "import sys, registry; registry.suites(); registry.ls('amber'); registry.suite('amber').revision(3)\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_loads_nothing_heavy():
    code = f"import sys, registry.cli; print([m for m in {HEAVY[:-1]} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
