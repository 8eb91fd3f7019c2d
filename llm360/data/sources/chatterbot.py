"""Questions and answers of the ChatterBot corpus, in English."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import Text, files
from llm360.data.sources import Source


def conversations(root: Path) -> Iterator[Text]:
    """Yield one text per conversation, a line per turn."""
    for path, data in files(root):
        for number, turns in enumerate(yaml.safe_load(data)["conversations"]):
            yield f"{path}:{number}", "\n".join(str(turn) for turn in turns)


SOURCE = Source(
    name="chatterbot",
    kind="stackexchange",
    packages=(PythonPackage("chatterbot-corpus==1.3.3"),),
    reads=("chatterbot_corpus/data/english/*.yml",),
    licence="BSD-3-Clause",
    documents=conversations,
)
