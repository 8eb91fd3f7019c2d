"""The C and C++ reference wiki cppreference.com."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="cppreference",
    kind="refinedweb",
    packages=(DebianPackage("cppreference-doc-en-html"),),
    reads=("usr/share/cppreference/doc/html/en/*.html",),
    licence="CC-BY-SA-3.0 OR GFDL-1.3-or-later",
    documents=html_pages,
)
