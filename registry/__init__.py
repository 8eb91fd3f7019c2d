"""Any artifact of a language model's training run, by name.

>>> import registry
>>> model = registry.load("amber-mini", ckpt=355)
>>> registry.checkpoint("amber-mini", ckpt=355).chunks_seen()
>>> registry.data_at("amber-mini", step=1234).provenance()
>>> registry.replay("amber-mini", ckpt=17).identical

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
from registry.artifacts import Checkpoint
from registry.chunks import Chunk, Excerpt
from registry.data import Batch, data_at, order, rows_seen, sources_seen, steps_of
from registry.ids import ArtifactId, Kind
from registry.lineage import irregularities
from registry.replay import replay, replay_all
from registry.store import Artifact, Store, use_store
from registry.streamed import RowBlock, StreamedChunk
from registry.suite import ChunkLines, Gap, Hub, Phase, Suite, Unpublished
from registry.workspace import Workspace

__all__ = [
    "Artifact",
    "ArtifactId",
    "Batch",
    "Checkpoint",
    "Chunk",
    "ChunkLines",
    "Excerpt",
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
    "RowBlock",
    "Store",
    "StoreUnavailable",
    "StreamedChunk",
    "Suite",
    "UnknownSuite",
    "Unpublished",
    "Workspace",
    "checkpoint",
    "data_at",
    "irregularities",
    "load",
    "load_chunk",
    "load_metrics",
    "ls",
    "order",
    "replay",
    "replay_all",
    "resolve",
    "rows_seen",
    "sources_seen",
    "steps_of",
    "suite",
    "suites",
    "use_store",
]
