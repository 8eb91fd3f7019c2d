"""The standard library's docstrings that no other source takes."""

from llm360.data.packaged.readers import module_docs, standard_library
from llm360.data.sources import Source
from llm360.data.sources._stdlib import HELP, MATHS, REFERENCE, WEB

SOURCE = Source(
    name="stdlib-docs",
    kind="refinedweb",
    packages=(),
    reads=(),
    licence="PSF-2.0",
    documents=lambda _: module_docs(standard_library(but=frozenset(MATHS | WEB | HELP | REFERENCE))),
)
