"""Refuse a CUDA build of torch where a CPU build was meant; set LLM360_CUDA=1 on a machine with GPUs.

Runs before anything else is installed, so it reads torch's version file instead of importing torch.
"""

import os
import runpy
import sys
import sysconfig
from pathlib import Path

version = runpy.run_path(str(Path(sysconfig.get_path("purelib")) / "torch" / "version.py"))
if version["cuda"] and not os.environ.get("LLM360_CUDA"):
    sys.exit(
        f"error: pip took torch {version['__version__']}, a CUDA build of several GB; expected a CPU build. "
        "Point pip at PyTorch's CPU wheels (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS) and run make again, "
        "or set LLM360_CUDA=1 if this machine has GPUs."
    )
