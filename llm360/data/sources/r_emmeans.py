"""Vignettes of R's emmeans package: statistics in Markdown with LaTeX."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import files
from llm360.data.sources import Source

SOURCE = Source(
    name="r-emmeans",
    kind="arxiv",
    packages=(DebianPackage("r-cran-emmeans"),),
    reads=("usr/lib/R/*/emmeans/doc/*.Rmd",),
    licence="GPL-2.0-only",
    documents=files,
)
