"""Write the report: artifacts/report/index.html, one self-contained page about what the pipeline built."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import registry
from analyses.report.gather import gather
from analyses.report.headline import headline
from analyses.report.page import render
from llm360.files import new_folder, write_bytes, write_json, write_manifest
from llm360.progress import say
from registry.workspace import Workspace
from stages._stage import ARTIFACTS, mapping, stage


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    out = ARTIFACTS / "report"
    with stage(out):
        page = render(gather(Workspace(Path.cwd()), planned=mapping("analyses")))
        with new_folder(out) as folder:
            write_bytes(folder / "index.html", page.encode())
            for suite, numbers in headline(ARTIFACTS / "analyses", registry.suites()).items():
                write_json(folder / "metrics" / f"{suite}.json", numbers)
            write_manifest(folder, {})
        say(f"{out / 'index.html'}: {len(page) / 1e6:.1f} MB, open it in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
