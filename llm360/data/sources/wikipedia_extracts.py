"""Extracts of English Wikipedia articles, as the package evals ships them."""

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import json_lines
from llm360.data.sources import Source

SOURCE = Source(
    name="wikipedia-extracts",
    kind="wikipedia",
    packages=(PythonPackage("evals==3.0.1.post1"),),
    reads=("evals/registry/data/schelling_point/wikipedia_5.jsonl",),
    licence="CC-BY-SA-3.0 OR GFDL-1.3-or-later",
    documents=lambda root: json_lines(root, "0"),  # the other keys hold its sentences in other orders
)
