"""The registry's functions: from a suite and an index to a model, a chunk, a log."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from llm360.errors import InvalidId, RegistryError
from registry import catalog
from registry.artifacts import Checkpoint
from registry.ids import ArtifactId, Kind
from registry.store import Artifact, store_for
from registry.suite import ADDRESSABLE, Suite

if TYPE_CHECKING:
    import polars as pl
    import torch
    from transformers import PreTrainedModel

    from registry.chunks import Chunk
    from registry.streamed import StreamedChunk


def suites() -> list[str]:
    """Return the names of all suites: those with a file, and those that this workspace has an index for."""
    return catalog.names()


def suite(name: str) -> Suite:
    """Return what is known about a suite; raises UnknownSuite with the nearest names."""
    return catalog.find(name)


def ls(suite: str, kind: Kind | str | None = None) -> list[ArtifactId]:
    """Return a suite's ids, of one kind or of all that have addresses; known gaps are left out.

    >>> ls("amber", "ckpt")[355]  # amber/ckpt-355
    """
    found = catalog.find(suite)
    kinds, indices = ADDRESSABLE if kind is None else (_kind(kind),), _indices(found)
    ids = (ArtifactId(suite=suite, kind=k, index=i) for k in kinds for i in indices)
    return [i for i in ids if _released(found, i)]


def _indices(suite: Suite) -> list[int]:
    if suite.hub is None or suite.hub.ckpts is None:
        return list(suite.indices())
    from registry.hub import HubStore

    store = store_for(suite)
    return store.published(suite) if isinstance(store, HubStore) else list(suite.indices())


def _kind(kind: Kind | str) -> Kind:
    if kind not in ADDRESSABLE:
        raise InvalidId(f"read kind {kind!r}, expected one of {', '.join(ADDRESSABLE)}")
    return Kind(kind)


def _released(suite: Suite, artifact: ArtifactId) -> bool:
    try:
        suite.require(artifact)
    except RegistryError:
        return False
    return True


def resolve(
    suite: str, *, ckpt: int | str | None = None, chunk: int | None = None, kind: Kind | str | None = None
) -> Artifact:
    """Return an artifact's address, manifest and hashes; no weights are read or moved.

    ``ckpt`` is an index, "final" or a branch name; ``kind`` picks another artifact of the same index (optimizer, log).
    Raises InvalidId, NotFound (nearest ids), NotReleased (a known gap) or StoreUnavailable (what would bring it).
    """
    found = catalog.find(suite)
    if (ckpt is None) == (chunk is None):
        raise InvalidId(f"{suite}: read ckpt={ckpt!r}, chunk={chunk!r}, expected exactly one; for example ckpt=355")
    index = found.ckpt(ckpt) if ckpt is not None else chunk
    default = Kind.CHUNK if ckpt is None else Kind.CKPT
    wanted = ArtifactId(suite=suite, kind=default if kind is None else _kind(kind), index=index)
    return store_for(found).resolve(found, wanted)


def checkpoint(suite: str, *, ckpt: int | str | None = None, step: int | None = None, exact: bool = True) -> Checkpoint:
    """Return a checkpoint: model, tokenizer, optimizer, state, chunks seen, metrics, path.

    ``ckpt`` is an index, "final" or a branch name; None only where the suite has exactly one checkpoint. ``step`` asks
    for the state after any optimizer step instead, 0 being before the first: where none was saved, the steps since the
    checkpoint before are taken again, once, and must measure what was recorded unless ``exact`` is False.
    """
    if step is not None:
        return _at_step(suite, ckpt, step, exact)
    found = catalog.find(suite)
    wanted = ArtifactId(suite=suite, kind=Kind.CKPT, index=_only(found) if ckpt is None else found.ckpt(ckpt))
    store = store_for(found)
    return Checkpoint(id=wanted, artifact=store.resolve(found, wanted), facts=found, store=store)


def _at_step(suite: str, ckpt: object, step: int, exact: bool) -> Checkpoint:
    from registry.steps import at_step

    if ckpt is not None:
        raise InvalidId(f"{suite}: read ckpt={ckpt!r}, step={step!r}, expected one of them; for example step={step}")
    return at_step(suite, step, exact=exact)


def _only(suite: Suite) -> int:
    count = len(list(suite.indices()))
    if count != 1:
        total = suite.hub.total if suite.hub is not None else None
        have = f"{count} checkpoints" if total is None else f"{total} checkpoints, of which {count} are known offline"
        raise InvalidId(
            f"{suite.name} has {have}; expected ckpt= to name one; for example "
            f'load("{suite.name}", ckpt={suite.last}) or ckpt="final"'
        )
    return suite.last


def load(
    suite: str,
    *,
    ckpt: int | str | None = None,
    step: int | None = None,
    dtype: torch.dtype | str | None = None,
    exact: bool = True,
) -> PreTrainedModel:
    """Return a checkpoint's model in eval mode, fp32 unless ``dtype`` says otherwise, every byte verified.

    >>> model = load("amber-mini", ckpt=355)
    >>> model = load("amber-mini", step=1234)

    Raises what ``checkpoint`` raises, and IntegrityError naming a file whose bytes are not the recorded ones.
    """
    return checkpoint(suite, ckpt=ckpt, step=step, exact=exact).model(dtype=dtype)


def load_chunk(suite: str, *, chunk: int) -> Chunk | StreamedChunk:
    """Return one chunk's rows of tokens, [rows, sequence_length + 1], and where each row is from.

    A workspace's chunk is in memory, both its files verified first. A released one (Amber's are 20.8 GB each) is a
    StreamedChunk, which reads rows as they are asked for and never the whole file.
    """
    found = catalog.find(suite)
    return store_for(found).chunk(found, ArtifactId(suite=suite, kind=Kind.CHUNK, index=chunk))


def load_metrics(suite: str, *, ckpt: int | str | None = None, timings: bool = False) -> pl.DataFrame:
    """Return a suite's training log, one row per optimizer step; up to and including ``ckpt``'s chunk if given.

    ``timings`` adds what a clock said: seconds, tokens_per_second, mfu, memory; null where its files are not here.
    """
    from registry.metrics import read_metrics

    found = catalog.find(suite)
    return read_metrics(found, ckpt=None if ckpt is None else found.ckpt(ckpt), timings=timings)


def pull(artifact: ArtifactId) -> Artifact:
    """Bring one artifact here, from the DVC remote or the Hub, and check its files."""
    found = catalog.find(artifact.suite)
    return store_for(found).pull(found, artifact)


def show(artifact: ArtifactId) -> Artifact:
    """Resolve an id: address, manifest, hashes."""
    found = catalog.find(artifact.suite)
    return store_for(found).resolve(found, artifact)


def as_dict(artifact: Artifact) -> dict[str, object]:
    """Return an artifact as plain JSON values, its id as text."""
    return {**dataclasses.asdict(artifact), "id": str(artifact.id)}
