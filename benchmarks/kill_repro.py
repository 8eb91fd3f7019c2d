"""Kill ``dvc repro`` at random moments and prove that the artifacts do not show it.

    python -m benchmarks.kill_repro --scale smoke --kills 10 --seed 1

Two copies of the project are made in a temporary folder. One runs to its end. The other is killed with SIGKILL
again and again and started again, until it has been killed as often as asked and has run to its end. Then every
file below artifacts/ is compared by sha256; only timings/, which hold what a clock says, may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llm360.files import sha256_file

ROOT = Path(__file__).resolve().parent.parent
CLOCKED = ("timings/", ".locks/")


def copy_project(target: Path, scale: str) -> None:
    """Copy the tracked files, make them a git repository of their own, and compose the scale."""
    files = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT).split(b"\0")
    for name in filter(None, files):
        source = ROOT / name.decode()
        if source.is_file():
            (target / name.decode()).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name.decode())
    (target / "dvc.lock").unlink(missing_ok=True)
    run(target, "git", "init", "-q")
    run(target, "git", "add", "-A")
    run(target, "git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "copy")
    run(target, sys.executable, "-m", "stages.compose", f"scale={scale}")


def run(cwd: Path, *command: str) -> str:
    """Run a command in a project copy and return what it printed; a failure shows its output."""
    done = subprocess.run(command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed in {cwd}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def environment(cwd: Path) -> dict[str, str]:
    """Return an environment in which the copy's own code is the one that runs."""
    return os.environ | {"PYTHONPATH": str(cwd), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def hashes(project: Path) -> dict[str, str]:
    """Return the sha256 of every artifact file that no clock decides."""
    root = project / "artifacts"
    names = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return {n: sha256_file(p) for n, p in sorted(names.items()) if not n.startswith(CLOCKED)}


def killed_once(project: Path, after_seconds: float) -> str | None:
    """Start the pipeline, kill it after some seconds and return the stage it was in; None if it ended before."""
    log = project / "repro.log"
    with open(log, "w", encoding="utf-8") as handle:
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro"],
            cwd=project,
            env=environment(project),
            stdout=handle,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(timeout=after_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            stages = re.findall(r"Running stage '(.+)'", log.read_text(encoding="utf-8"))
            return str(stages[-1]) if stages else "(before the first stage)"
    if code:
        mend(project, log)
    return None


def mend(project: Path, log: Path) -> None:
    """A kill inside DVC's write of dvc.lock tears it (not atomic); the project's wrapper mends it."""
    if "dvc.lock" not in (text := log.read_text(encoding="utf-8")):
        raise SystemExit(f"dvc repro failed after a kill:\n{text[-3000:]}")
    run(project, sys.executable, "-m", "stages.repro")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="llm360-kill-") as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        for project in (whole, killed):
            copy_project(project, args.scale)
        started = time.monotonic()
        run(whole, sys.executable, "-m", "dvc", "repro")
        seconds = time.monotonic() - started
        print(f"never killed: {seconds:.0f} s", flush=True)
        where = kill_often(killed, args.kills, seconds, draw)
        run(killed, sys.executable, "-m", "stages.repro")
        different = differences(hashes(whole), hashes(killed))
        files = len(hashes(whole))
    for name in different:
        print(f"differs: {name}")
    result = {"scale": args.scale, "kills": len(where), "killed_in": where, "files": files, "seconds": round(seconds)}
    print(json.dumps(result | {"different": len(different)}))
    return 1 if different else 0


def kill_often(project: Path, kills: int, seconds: float, draw: random.Random) -> list[str]:
    """Kill ``kills`` times; the waits are drawn so that the kills are spread over the whole pipeline."""
    where: list[str] = []
    while len(where) < kills:
        stage = killed_once(project, draw.uniform(2, 2.2 * seconds / kills))
        if stage is None:  # ran to its end before all kills: begin again with a part of the work undone
            victim = draw.choice(["chunks", "checkpoints", "evaluation", "analyses"])
            shutil.rmtree(project / "artifacts" / victim)
            continue
        where.append(stage)
        print(f"kill {len(where)}: in {stage}", flush=True)
    return where


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    """Return the names that are not in both with one hash."""
    return sorted(n for n in a.keys() | b.keys() if a.get(n) != b.get(n))


if __name__ == "__main__":
    sys.exit(main())
