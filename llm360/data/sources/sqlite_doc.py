"""SQLite's web site: articles and reference."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="sqlite-doc",
    kind="c4",
    packages=(DebianPackage("sqlite3-doc"),),
    reads=("usr/share/doc/sqlite3/*.html",),
    licence="public domain",
    documents=html_pages,
)
