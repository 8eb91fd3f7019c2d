"""The rows that one rank reads of a chunk, in the order of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llm360.data.chunks import ChunkReader
from llm360.data.order import chunk_order, steps_in_chunk
from llm360.errors import DataError

if TYPE_CHECKING:
    import torch

    from llm360.train.distributed import World
    from llm360.train.params import PhaseParams

BLOCK_ROWS = 4096  # rows decoded at a time: a chunk of Amber is 7 GB, a rank's part of it little

# Array names: S optimizer steps of the chunk, B rows of this rank's part of a batch, L sequence_length.


def step_count(chunks: ChunkReader, chunk: int, params: PhaseParams) -> int:
    """Return the optimizer steps of a chunk; raises DataError when it does not fill one."""
    steps = steps_in_chunk(rows=chunks.rows(chunk), batch_size=params.batch_size)
    if not steps:
        raise DataError(f"chunk {chunk} holds fewer rows than one batch; expected at least one step: lower batch_size")
    return steps


def rank_rows(chunks: ChunkReader, chunk: int, params: PhaseParams, world: World) -> npt.NDArray[np.int64]:
    """Return the rows of the chunk that this rank trains on, int64 [S, B].

    All ranks together read the same rows at the same steps whatever their number is.
    """
    steps = step_count(chunks, chunk, params)
    order = chunk_order(seed=params.seed, phase=params.phase, chunk=chunk, rows=chunks.rows(chunk))
    return order[: steps * params.batch_size].reshape(steps, params.batch_size)[:, world.rows(params.batch_size)]


def batches(
    chunks: ChunkReader, chunk: int, params: PhaseParams, world: World, *, begin: int
) -> Iterator[torch.Tensor]:
    """Yield this rank's batches of a chunk from step ``begin`` on, int64 [B, L + 1]; its file is checked first."""
    import torch

    rows_SB = rank_rows(chunks, chunk, params, world)
    tokens = _read(chunks, chunk, rows_SB.ravel()).reshape(*rows_SB.shape, -1)
    for step in range(begin, len(tokens)):
        yield torch.from_numpy(tokens[step].astype("int64"))


def _read(chunks: ChunkReader, chunk: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the named rows of a chunk, in that order, from one pass over it in stored order."""
    place = np.full(chunks.rows(chunk), -1)
    place[rows] = np.arange(len(rows))
    tokens, start = None, 0
    for block in chunks.blocks(chunk, BLOCK_ROWS):
        if tokens is None:
            tokens = np.empty((len(rows), block.shape[1]), block.dtype)
        here = place[start : start + len(block)]
        tokens[here[here >= 0]] = block[here >= 0]
        start += len(block)
    assert tokens is not None, "a chunk has rows: step_count"
    return tokens
