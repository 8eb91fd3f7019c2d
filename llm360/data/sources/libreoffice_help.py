"""LibreOffice's help pages, in English."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import html_pages
from llm360.data.sources import Source

SOURCE = Source(
    name="libreoffice-help",
    kind="refinedweb",
    packages=(DebianPackage("libreoffice-help-en-us"),),
    reads=("usr/share/libreoffice/help/en-US/text/*.html",),
    licence="MPL-2.0",
    documents=html_pages,
)
