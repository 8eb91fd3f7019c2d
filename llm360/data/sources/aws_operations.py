"""What the services of AWS and their operations do: the web reference behind botocore."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llm360.data.packaged.packages import PythonPackage
from llm360.data.packaged.readers import Text, files, html_text
from llm360.data.sources import Source


def services(root: Path) -> Iterator[Text]:
    """Yield one text per service and version: its description and those of its operations."""
    for path, data in files(root):
        yield path, described(json.loads(gzip.decompress(data)))


def described(service: dict[str, Any]) -> str:
    """Return a service's documentation, then each operation's under its name."""
    operations = sorted(service["operations"].items())
    pieces = [service.get("documentation", ""), *(f"<h2>{n}</h2>{o.get('documentation', '')}" for n, o in operations)]
    return "\n\n".join(html_text(piece) for piece in pieces).strip()


SOURCE = Source(
    name="aws-operations",
    kind="refinedweb",
    packages=(PythonPackage("botocore==1.43.117"),),
    reads=("botocore/data/*/service-2.json.gz",),
    licence="Apache-2.0",
    documents=services,
)
