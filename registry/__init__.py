"""Any artifact of a language model's training run, by name.

>>> import registry
>>> model = registry.load("amber-mini", ckpt=355)
>>> registry.checkpoint("amber-mini", ckpt=355).chunks_seen()

Importing this package is light: torch, transformers, polars and zarr are imported by the call that needs them.
"""

from llm360.errors import (
    IntegrityError,
    InvalidId,
    LLM360Error,
    NotFound,
    NotReleased,
    RegistryError,
    StoreUnavailable,
    UnknownSuite,
)
from llm360.files import FileEntry
from registry.api import (
    checkpoint,
    load,
    load_chunk,
    load_metrics,
    ls,
    resolve,
    suite,
    suites,
)
from registry.artifacts import Checkpoint, Chunk
from registry.ids import ArtifactId, Kind
from registry.store import Artifact, Store, use_store
from registry.suite import Gap, Hub, Phase, Suite
from registry.workspace import Workspace

__all__ = [
    "Artifact",
    "ArtifactId",
    "Checkpoint",
    "Chunk",
    "FileEntry",
    "Gap",
    "Hub",
    "IntegrityError",
    "InvalidId",
    "Kind",
    "LLM360Error",
    "NotFound",
    "NotReleased",
    "Phase",
    "RegistryError",
    "Store",
    "StoreUnavailable",
    "Suite",
    "UnknownSuite",
    "Workspace",
    "checkpoint",
    "load",
    "load_chunk",
    "load_metrics",
    "ls",
    "resolve",
    "suite",
    "suites",
    "use_store",
]
