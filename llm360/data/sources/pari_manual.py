"""The manuals of PARI/GP in TeX: number theory."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import files
from llm360.data.sources import Source

SOURCE = Source(
    name="pari-manual",
    kind="arxiv",
    packages=(DebianPackage("pari-doc"),),
    reads=("usr/share/*pari*/*.tex",),
    licence="GPL-2.0-or-later",
    documents=files,
)
