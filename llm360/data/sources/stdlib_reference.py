"""The standard library's docstrings on types, containers and files."""

from llm360.data.sources._stdlib import REFERENCE, docs

SOURCE = docs("stdlib-reference", "wikipedia", REFERENCE)
