"""The GNU Collaborative International Dictionary of English: an article per headword."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import dictionary
from llm360.data.sources import Source

SOURCE = Source(
    name="gcide",
    kind="wikipedia",
    packages=(DebianPackage("dict-gcide"),),
    reads=("usr/share/dictd/gcide.*",),
    licence="GPL-2.0-or-later",
    documents=dictionary,
)
