"""Git's manual pages and guides, as web pages."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="git-doc",
    kind="c4",
    packages=(DebianPackage("git-doc"),),
    reads=("usr/share/doc/git-doc/*.html",),
    licence="GPL-2.0-only",
    documents=html_pages,
)
