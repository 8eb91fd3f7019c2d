"""Download the packages that the sources in the parameters need: ``python -m stages.packages``."""

from __future__ import annotations

import argparse

from llm360.data.collect import Selection, needed_packages
from llm360.data.packages import fetch_packages
from llm360.files import new_folder
from llm360.progress import say
from stages._stage import ARTIFACTS, mapping, section, stage


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m stages.packages", description=__doc__).parse_args(argv)
    out = ARTIFACTS / "packages"
    with stage(out):
        packages = needed_packages({kind: section(f"sources.{kind}", Selection) for kind in mapping("sources")})
        with new_folder(out) as folder:
            fetch_packages(packages, folder)
        say(f"{out}: {len(set(packages))} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
