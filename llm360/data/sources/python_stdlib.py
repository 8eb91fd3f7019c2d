"""The Python standard library's own code, from the running interpreter."""

from llm360.data.packaged.readers import standard_library
from llm360.data.sources import Source

SOURCE = Source(
    name="python-stdlib",
    kind="starcoderdata",
    packages=(),
    reads=(),
    licence="PSF-2.0",
    documents=lambda _: standard_library(),
)
