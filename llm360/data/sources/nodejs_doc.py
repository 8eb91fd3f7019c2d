"""The reference of Node.js."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="nodejs-doc",
    kind="refinedweb",
    packages=(DebianPackage("nodejs-doc"),),
    reads=("usr/share/doc/nodejs/api/[!a]*.html", "usr/share/doc/nodejs/api/a[!l]*.html"),  # all.html repeats them
    licence="MIT",
    documents=html_pages,
)
