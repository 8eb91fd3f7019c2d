"""The docstrings of transformers, without those of its single models, which repeat each other."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import module_docs, python_files
from llm360.data.sources import Source

SOURCE = Source(
    name="transformers-docs",
    kind="c4",
    packages=(PythonPackage("transformers==5.24.0"),),
    reads=("transformers/*.py",),
    licence="Apache-2.0",
    documents=lambda root: module_docs(f for f in python_files(root) if "/models/" not in f[0]),
)
