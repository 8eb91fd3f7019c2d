"""NumPy's docstrings that hold LaTeX formulas."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import matching_docs, python_files
from llm360.data.sources import Source

SOURCE = Source(
    name="numpy-maths",
    kind="arxiv",
    packages=(PythonPackage("numpy==2.4.6"),),
    reads=("numpy/*.py",),
    licence="BSD-3-Clause",
    documents=lambda root: matching_docs(python_files(root), ":math:|math::"),
)
