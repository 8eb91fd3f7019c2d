"""Web pages of OpenWebText, as the package evals ships them."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import json_lines
from llm360.data.sources import Source

SOURCE = Source(
    name="openwebtext",
    kind="c4",
    packages=(PythonPackage("evals==3.0.1.post1"),),
    reads=("evals/registry/data/schelling_point/owt_5.jsonl",),
    licence="CC0-1.0",
    documents=lambda root: json_lines(root, "0"),  # the other keys hold its sentences in other orders
)
