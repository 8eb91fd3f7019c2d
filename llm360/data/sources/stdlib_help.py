"""The standard library's docstrings on command lines, logs, tests and errors."""

from llm360.data.sources._stdlib import HELP, docs

SOURCE = docs("stdlib-help", "stackexchange", HELP)
