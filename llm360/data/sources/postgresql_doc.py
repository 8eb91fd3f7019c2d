"""PostgreSQL's manual."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="postgresql-doc",
    kind="refinedweb",
    packages=(DebianPackage("postgresql-doc-15"),),
    reads=("usr/share/doc/postgresql-doc-15/html/*.html",),
    licence="PostgreSQL",
    documents=html_pages,
)
