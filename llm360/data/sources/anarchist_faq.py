"""An Anarchist FAQ: questions, each with a long answer."""

import re
from collections.abc import Iterator
from pathlib import Path

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import Text, convert, files, html_text
from llm360.data.sources import Source


def questions(root: Path) -> Iterator[Text]:
    """Yield one text per question; a page's questions are its second-level headings."""
    for page, data in files(root):
        pieces = re.split(rb"(?=<h2)", data)
        yield from convert(((f"{page}:{number}", piece) for number, piece in enumerate(pieces)), html_text)


SOURCE = Source(
    name="anarchist-faq",
    kind="stackexchange",
    packages=(DebianPackage("anarchism"),),
    reads=("usr/share/doc/anarchism/html/sec*.html",),
    licence="GPL-2.0-only",
    documents=questions,
)
