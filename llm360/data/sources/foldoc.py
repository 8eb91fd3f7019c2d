"""The Free On-line Dictionary of Computing: an article per headword."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import dictionary
from llm360.data.sources import Source

SOURCE = Source(
    name="foldoc",
    kind="wikipedia",
    packages=(DebianPackage("dict-foldoc"),),
    reads=("usr/share/dictd/foldoc.*",),
    licence="GFDL-1.1-no-invariants-or-later",
    documents=dictionary,
)
