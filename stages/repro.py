"""``dvc repro`` behind a check of dvc.lock, which DVC does not write atomically: a torn one is cut back to its
whole entries. The stages that lose theirs run again and find their finished work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from llm360.files import write_bytes
from llm360.progress import say

LOCK = Path("dvc.lock")


def mend(text: str) -> str | None:
    """Return ``text`` cut to its whole stages, or None when nothing is torn.

    Only a cut at the end is mended: DVC writes the file from the start, so that is what a kill leaves.
    """
    if _whole(text):
        return None
    lines = text.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith("  ") and line[2:3] not in (" ", "-", "")]
    for start in reversed(starts):
        kept = "".join(lines[:start])
        if _whole(kept):
            return kept
    return ""


def _whole(text: str) -> bool:
    try:
        lock = yaml.safe_load(text)
        stages = lock["stages"].values()
        return lock["schema"] == "2.0" and text.endswith("\n") and all(s["cmd"] and s["outs"] for s in stages)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return False


def main(argv: list[str] | None = None) -> int:
    if LOCK.is_file() and (mended := mend(LOCK.read_text(encoding="utf-8"))) is not None:
        say(f"{LOCK}: torn by a kill; kept its whole entries, the other stages are checked again")
        if mended:
            write_bytes(LOCK, mended.encode())
        else:
            LOCK.unlink()
    return subprocess.run(["dvc", "repro", *(sys.argv[1:] if argv is None else argv)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
