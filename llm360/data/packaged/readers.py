"""Readers from what packages ship (HTML pages, docstrings, code) to pairs of (origin, text).

A reader hands on the bytes of a file that is not UTF-8; the collector counts it as skipped and names it.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import string
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

File = tuple[str, bytes]  # path inside its root (POSIX), content
Text = tuple[str, str | bytes]  # origin, text

DICTD_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
TESTS = frozenset({"test", "tests", "idle_test", "testing"})
TABLES = frozenset({"encodings", "pydoc_data"})  # generated code of the standard library
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
BLOCKS = HEADINGS | {"p", "div", "section", "article", "ul", "ol", "dl", "table", "blockquote", "pre", "hr", "body"}
LINES = frozenset({"br", "li", "tr", "dt", "dd"})
UNSEEN = frozenset({"head", "script", "style", "noscript", "nav", "header", "footer", "aside", "button", "svg"})


def files(root: Path) -> Iterator[File]:
    """Yield every file below ``root`` in the order of its path."""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        yield path.relative_to(root).as_posix(), path.read_bytes()


def convert(pages: Iterable[File], function: Callable[[str], str]) -> Iterator[Text]:
    """Yield ``function`` of each file's text, or the bytes as they are when they are not UTF-8."""
    for origin, data in pages:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            yield origin, data
        else:
            yield origin, function(text)


def html_pages(root: Path) -> Iterator[Text]:
    """Yield the text of every HTML page below ``root``."""
    return convert(files(root), html_text)


def html_text(html: str) -> str:
    """Return what a reader of the page sees: no markup, scripts or navigation; a blank line between blocks."""
    parser = _Page()
    parser.feed(html)
    parser.close()
    lines = re.sub(r"[ \t]+\n", "\n", "".join(parser.pieces))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


class _Page(HTMLParser):
    """Collects the visible text; the outermost unseen tag hides all up to its own end."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.hidden: list[str] = []  # the unseen tag that is open, once per nesting of the same tag
        self.preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self.hidden.clear()  # HTML lets a head stay open
        if self.hidden:
            self.hidden.extend([tag] if tag == self.hidden[0] else [])
        elif tag in UNSEEN:
            self.hidden.append(tag)
        else:
            self._break(tag)
            self.preformatted += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.hidden:
            self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.hidden:
            self.hidden.pop() if tag == self.hidden[0] else None
        elif tag in BLOCKS:
            self._break(tag)
            self.preformatted = max(0, self.preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self.hidden:
            return
        text = data if self.preformatted else re.sub(r"\s+", " ", data)
        at_start = not self.pieces or self.pieces[-1].endswith((" ", "\n"))
        self.pieces.append(text if self.preformatted or not at_start else text.lstrip(" "))

    def _break(self, tag: str) -> None:
        if tag in BLOCKS or tag in LINES:
            self.pieces.append("\n\n" if tag in BLOCKS else "\n")


def python_files(
    root: Path, *, only: frozenset[str] | None = None, but: frozenset[str] = frozenset()
) -> Iterator[File]:
    """Yield the Python files below ``root`` but their tests; ``only`` and ``but`` choose the entries right below it."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not TESTS.isdisjoint(parts) or parts[0] in but or (only is not None and parts[0] not in only):
            continue
        yield path.relative_to(root).as_posix(), path.read_bytes()


def standard_library(*, only: frozenset[str] | None = None, but: frozenset[str] = frozenset()) -> Iterator[File]:
    """Yield the source files of the running interpreter's standard library, without what is installed or generated."""
    installed = {"site-packages", "dist-packages"}
    for origin, data in python_files(Path(sysconfig.get_path("stdlib")), only=only, but=but | installed | TABLES):
        if not origin.startswith("_sysconfigdata"):  # names the host's paths
            yield origin, data


def docstrings(code: str) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, docstring) of a module, its classes and functions in order; none of what is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        try:
            module = ast.parse(code)
        except (SyntaxError, ValueError):
            return
    yield from _docstrings(module, "")


def _docstrings(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}" if name else child.name)


def module_docs(modules: Iterable[File]) -> Iterator[Text]:
    """Yield one text per module: its docstrings, each under its name."""
    return convert(modules, lambda code: "\n\n".join(f"{name}\n\n{text}".strip() for name, text in docstrings(code)))


def matching_docs(modules: Iterable[File], pattern: str) -> Iterator[Text]:
    """Yield one text per docstring that holds ``pattern`` (a regular expression), under its name."""
    for path, data in modules:
        for number, (name, text) in enumerate(docstrings(data.decode("utf-8", errors="replace"))):
            if re.search(pattern, text):
                yield f"{path}:{number}:{name}", f"{name}\n\n{text}"


def json_lines(root: Path, key: str) -> Iterator[Text]:
    """Yield the string under ``key`` of every line of the JSONL files below ``root``."""
    for path, data in files(root):
        for number, line in enumerate(data.splitlines()):
            yield f"{path}:{number}", str(json.loads(line)[key])


def dictionary(root: Path) -> Iterator[Text]:
    """Yield the articles of dictd dictionaries: lines of headword, offset, length in *.index, the text in *.dict.dz."""
    for index in sorted(root.rglob("*.index")):
        text = gzip.decompress(index.with_suffix(".dict.dz").read_bytes())
        places: dict[tuple[int, int], str] = {}
        for line in index.read_bytes().splitlines():
            word, offset, length = line.decode("utf-8", errors="replace").split("\t")
            if not word.startswith("00-database"):
                places.setdefault((_dictd_number(offset), _dictd_number(length)), word)
        for (offset_, length_), word in sorted(places.items()):
            yield f"{index.stem}@{offset_}:{word}", text[offset_ : offset_ + length_]


def _dictd_number(digits: str) -> int:
    """Return a number that dictd writes in base 64, most significant digit first."""
    number = 0
    for digit in digits:
        number = number * 64 + DICTD_DIGITS.index(digit)
    return number
