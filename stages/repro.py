"""``dvc repro`` behind a check of dvc.lock, which DVC does not write atomically: one that a kill tore is cut back to
its whole entries. The stage that loses its entry runs again and finds its finished work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from llm360.errors import IntegrityError
from llm360.files import write_bytes
from llm360.progress import say
from stages._stage import one_line_errors

LOCK = Path("dvc.lock")
TORN = Path("dvc.lock.torn")


def mend(text: str) -> str | None:
    """Return ``text`` without its last, torn entry, "" when that was the first, or None when nothing is torn.

    DVC writes the file from its start, so a kill leaves a prefix of it. Raises IntegrityError for other damage.
    """
    if _whole(text):
        return None
    lines = text.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith("  ") and line[2:3] not in (" ", "-", "")]
    kept = "".join(lines[: starts[-1]]) if len(starts) > 1 else ""
    if any(line.startswith(("<<<<<<<", "=======", ">>>>>>>")) for line in lines) or (kept and not _whole(kept)):
        raise IntegrityError(
            f"{LOCK}: damaged, and not by a kill while it was written; nothing was changed. "
            f"Take the committed one: git checkout {LOCK}; or delete it: every stage then runs again"
        )
    return kept


def _whole(text: str) -> bool:
    try:
        lock = yaml.safe_load(text)
        stages = lock["stages"].values()
        return lock["schema"] == "2.0" and text.endswith("\n") and all(s["cmd"] and s["outs"] for s in stages)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return False


def main(argv: list[str] | None = None) -> int:
    with one_line_errors():
        _mend_lock()
    return subprocess.run(["dvc", "repro", *(sys.argv[1:] if argv is None else argv)], check=False).returncode


def _mend_lock() -> None:
    text = LOCK.read_text(encoding="utf-8") if LOCK.is_file() else ""
    kept = mend(text) if text else None
    if kept is None:
        return
    write_bytes(TORN, text.encode())
    write_bytes(LOCK, kept.encode()) if kept else LOCK.unlink()
    say(f"{LOCK}: torn by a kill; its last entry is dropped and that stage checked again (the old file: {TORN})")


if __name__ == "__main__":
    sys.exit(main())
