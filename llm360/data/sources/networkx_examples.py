"""NetworkX: what a function does, answered with an example session."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import matching_docs, python_files
from llm360.data.sources import Source

SOURCE = Source(
    name="networkx-examples",
    kind="stackexchange",
    packages=(PythonPackage("networkx==3.6.1"),),
    reads=("networkx/*.py",),
    licence="BSD-3-Clause",
    documents=lambda root: matching_docs(python_files(root), ">>> "),
)
