"""The GNU Collaborative International Dictionary of English: an article per headword."""

from llm360.data.packages import DebianPackage
from llm360.data.readers import dictionary
from llm360.data.sources import Source

SOURCE = Source(
    name="gcide",
    kind="wikipedia",
    packages=(DebianPackage("dict-gcide"),),
    reads=("usr/share/dictd/gcide.*",),
    licence="GPL-2.0-or-later",
    documents=dictionary,
)
