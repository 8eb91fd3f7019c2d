"""SymPy's code."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import python_files
from llm360.data.sources import Source

SOURCE = Source(
    name="sympy-code",
    kind="starcoderdata",
    packages=(PythonPackage("sympy==1.14.0"),),
    reads=("sympy/*.py",),
    licence="BSD-3-Clause",
    documents=python_files,
)
