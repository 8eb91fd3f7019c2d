"""The Apache HTTP Server's manual, in English but for a few pages."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="apache-doc",
    kind="refinedweb",
    packages=(DebianPackage("apache2-doc"),),
    reads=("usr/share/doc/apache2-doc/manual/en/*.html",),
    licence="Apache-2.0",
    documents=html_pages,
)
