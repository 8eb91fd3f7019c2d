"""Run one pretraining phase: checkpoints, metrics, ledger and timings of <suite>[/<phase>].

Alone, or as one of several ranks: `runtime.ranks` processes of this machine by torchrun, or over the Ray cluster that
RAY_ADDRESS names. `torchrun ... -m stages.pretrain --phase ...` does the same where a cluster starts processes itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from llm360.code import TRAINING, code_sha256
from llm360.config import canonical_json
from llm360.data.chunks import ChunkReader
from llm360.environment import environment, use_threads
from llm360.files import manifest_sha256, write_bytes
from llm360.launch import in_ranks, launch, on_ray
from llm360.processes import RAY_ADDRESS
from llm360.progress import say
from llm360.trackers import open_trackers
from llm360.train.checks import check_inputs
from llm360.train.distributed import World, join
from llm360.train.params import PhaseParams
from llm360.train.pause import EXIT_CODE, Paused
from llm360.train.phase import run_phase
from llm360.train.record import RunFolders
from stages._stage import (
    ARTIFACTS,
    Runtime,
    end_without_parent,
    mapping,
    one_line_errors,
    persistent,
    section,
    stage,
)

MODULE = "stages.pretrain"


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", required=True, help="key of the pretrain section, e.g. crystal-mini-phase2")
    args = parser.parse_args(argv)
    with one_line_errors():
        runtime = section("runtime", Runtime)
        if runtime.ranks > 1 and not in_ranks():
            end_without_parent()
            run = on_ray if os.environ.get(RAY_ADDRESS) else launch
            return run(MODULE, argv, ranks=runtime.ranks)
        use_threads(runtime.threads)
        with join(replicas=runtime.replicas) as world:
            return train(args.phase, runtime, world)


def train(phase: str, runtime: Runtime, world: World) -> int:
    """Run the phase as one of the ranks of ``world``; only the first one writes."""
    params = section(f"pretrain.{phase}", PhaseParams)
    kinds = ("checkpoints", "metrics", "ledgers", "timings")
    work = ARTIFACTS / ".work" / "pretrain" / params.folder
    folders = RunFolders(*[ARTIFACTS / kind / params.folder for kind in kinds], work)
    start = ARTIFACTS / params.start
    alone: AbstractContextManager[None] = stage(folders.checkpoints) if world.leads else contextlib.nullcontext()
    with alone:
        chunks = ChunkReader(ARTIFACTS / "chunks" / params.folder)
        check_inputs(params, start=start, chunks=chunks, world=world)  # before another recipe removes what is there
        recipe = {
            "params": mapping(f"pretrain.{phase}"),
            "chunks": manifest_sha256(chunks.folder),
            "start": manifest_sha256(start),
            "code": code_sha256(*TRAINING),
            "environment": environment(),
        }
        if world.leads:
            _prepare(folders, recipe)
        world.barrier()
        try:
            with _trackers(runtime, folders, params, recipe, world) as trackers:
                run_phase(
                    params, start=start, chunks=chunks, folders=folders, recipe=recipe, world=world, trackers=trackers
                )
        except Paused as paused:
            if world.leads:
                say(str(paused))
            return EXIT_CODE
    return 0


def _prepare(folders: RunFolders, recipe: Mapping[str, Any]) -> None:
    for folder in (folders.timings, folders.ledger, folders.metrics, folders.checkpoints):
        persistent(folder, recipe)
    _log_session(folders.timings / "sessions.jsonl")


@contextlib.contextmanager
def _trackers(
    runtime: Runtime, folders: RunFolders, params: PhaseParams, recipe: Mapping[str, Any], world: World
) -> Iterator[Any]:
    names = runtime.trackers if world.leads else ()
    trackers = open_trackers(names, folder=folders.timings, run=params.folder, config=recipe)
    try:
        yield trackers
    finally:
        for tracker in trackers:
            tracker.close()


def _log_session(path: Path) -> None:
    """Append who ran and when; this file is where a resumed run differs from one never killed."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    session = {"started": time.time(), "host": platform.node(), "pid": os.getpid(), "code_revision": revision or None}
    old = path.read_bytes() if path.is_file() else b""
    write_bytes(path, old + f"{canonical_json(session)}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
