"""The standard library's docstrings on the web, mail and markup."""

from llm360.data.sources._stdlib import WEB, docs

SOURCE = docs("stdlib-web", "c4", WEB)
