"""The hash of the source files that a training run's bytes depend on."""

from __future__ import annotations

import functools
from pathlib import Path

from llm360.files import sha256_bytes

TRAINING = ("llm360/checkpoint.py", "llm360/data/order.py", "llm360/data/chunks.py", "llm360/model", "llm360/train")


@functools.cache
def code_sha256(*paths: str) -> str:
    """Return one hash over the source files below ``paths``, which are relative to the folder that holds llm360.

    Once for a process: what is edited while it runs is not what runs.
    """
    root = Path(__file__).resolve().parent.parent
    files = sorted({f for p in paths for f in ([root / p] if p.endswith(".py") else (root / p).rglob("*.py"))})
    return sha256_bytes(b"".join(f.relative_to(root).as_posix().encode() + b"\0" + f.read_bytes() for f in files))
