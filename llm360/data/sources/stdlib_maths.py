"""The standard library's docstrings on numbers, dates and algorithms."""

from llm360.data.sources._stdlib import MATHS, docs

SOURCE = docs("stdlib-maths", "arxiv", MATHS)
