"""Run one pretraining phase: checkpoints, metrics, ledger and timings of <suite>[/<phase>]."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from llm360.config import canonical_json, fingerprint
from llm360.data.chunks import ChunkReader
from llm360.environment import environment, use_threads
from llm360.files import manifest_sha256, write_bytes
from llm360.train.phase import PhaseParams, RunFolders, run_phase
from stages._stage import ARTIFACTS, code_sha256, mapping, one_line_errors, persistent, section, stage, threads

CODE = ("llm360/checkpoint.py", "llm360/data/order.py", "llm360/data/chunks.py", "llm360/model", "llm360/train")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", required=True, help="key of the pretrain section, e.g. crystal-mini-phase2")
    args = parser.parse_args(argv)
    with one_line_errors():
        params = section(f"pretrain.{args.phase}", PhaseParams)
    kinds = ("checkpoints", "metrics", "ledgers", "timings")
    folders = RunFolders(*[ARTIFACTS / kind / params.folder for kind in kinds])
    with stage(folders.checkpoints):
        use_threads(threads())
        chunks, start = ARTIFACTS / "chunks" / params.folder, ARTIFACTS / params.start
        recipe = {
            "params": mapping(f"pretrain.{args.phase}"),
            "chunks": manifest_sha256(chunks),
            "start": manifest_sha256(start),
            "code": code_sha256(*CODE),
            "environment": environment(),
        }
        for folder in (folders.timings, folders.ledger, folders.metrics, folders.checkpoints):
            persistent(folder, recipe)
        _log_session(folders.timings / "sessions.jsonl")
        fields = {"fingerprint": fingerprint(recipe), "environment": environment()}
        run_phase(params, start=start, chunks=ChunkReader(chunks), folders=folders, fields=fields)
    return 0


def _log_session(path: Path) -> None:
    """Append who ran and when; this file is where a resumed run differs from one never killed."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    session = {"started": time.time(), "host": platform.node(), "pid": os.getpid(), "code_revision": revision or None}
    old = path.read_bytes() if path.is_file() else b""
    write_bytes(path, old + f"{canonical_json(session)}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
