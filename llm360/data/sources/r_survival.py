"""Vignettes of R's survival package: papers in LaTeX (Sweave), mathematics and code."""

from llm360.data.packaged.packages import DebianPackage
from llm360.data.packaged.readers import files
from llm360.data.sources import Source

SOURCE = Source(
    name="r-survival",
    kind="arxiv",
    packages=(DebianPackage("r-cran-survival"),),
    reads=("usr/lib/R/*/survival/doc/*.Rnw",),
    licence="GPL-2.0-only",
    documents=files,
)
