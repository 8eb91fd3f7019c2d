"""The chapters of Python's language reference that ``help()`` shows."""

from collections.abc import Iterator
from pathlib import Path

from llm360.data.packaged.readers import Text
from llm360.data.sources import Source


def topics(_: Path) -> Iterator[Text]:
    """Yield one text per topic."""
    from pydoc_data.topics import topics as chapters

    yield from sorted(chapters.items())


SOURCE = Source(name="python-topics", kind="book", packages=(), reads=(), licence="PSF-2.0", documents=topics)
