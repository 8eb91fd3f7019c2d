"""Collect the documents of one kind from its packages: ``python -m stages.sources --kind arxiv``."""

from __future__ import annotations

import argparse

from llm360.data.collect import Selection, collect
from llm360.files import new_folder, read_manifest
from llm360.progress import say
from stages._stage import ARTIFACTS, section, stage


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m stages.sources", description=__doc__)
    parser.add_argument("--kind", required=True, help="a key of the section sources")
    kind = parser.parse_args(argv).kind
    out = ARTIFACTS / "sources" / kind
    with stage(out):
        selection = section(f"sources.{kind}", Selection)
        with new_folder(out) as folder:
            collect(kind, selection, packages=ARTIFACTS / "packages", out=folder)
        made = read_manifest(out)
        say(f"{out}: {made['documents']} documents, {made['bytes'] / 1e6:.2f} MB, {len(made['skipped'])} skipped")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
