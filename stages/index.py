"""Write a suite's index: one row per checkpoint, refused when the checkpoints do not make one run."""

from __future__ import annotations

import argparse
from pathlib import Path

from llm360.progress import say
from registry.index import write_index
from registry.workspace import Workspace
from stages._stage import ARTIFACTS, stage


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True, help="the suite's name, for example amber-mini")
    suite = parser.parse_args(argv).suite
    with stage(ARTIFACTS / "index" / f"{suite}.json"):
        path = write_index(Workspace(Path.cwd()), suite)
        say(f"{path.relative_to(Path.cwd())}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
