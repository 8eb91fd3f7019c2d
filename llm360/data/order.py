"""Order: pure functions from names and numbers to permutations.

Philox is counter based and its raw output is fixed by its definition (Salmon et al. 2011), unlike numpy's
``Generator.permutation``, which may change between releases. So an order computed today is the order of any year.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def permutation(size: int, *words: object) -> Indices:
    """Return a permutation of range(size), int64, that depends on ``words`` and nothing else."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    raw = np.random.Philox(key=key).random_raw(size)
    return np.argsort(raw, kind="stable").astype(np.int64)


def chunk_order(*, seed: int, phase: str, chunk: int, rows: int) -> Indices:
    """Return the rows of a chunk in the order of training: position p reads row ``chunk_order(...)[p]``.

    chunk is the index in the suite. World size, restarts and batch size play no part.
    """
    return permutation(rows, "order", seed, phase, chunk)


def steps_in_chunk(*, rows: int, batch_size: int) -> int:
    """Return the optimizer steps of a chunk; ``rows % batch_size`` rows at its end fill no step."""
    return rows // batch_size


def step_rows(order: Indices, *, step: int, batch_size: int) -> Indices:
    """Return the rows of optimizer step ``step`` (from 0 within the chunk): positions [step*B, (step+1)*B)."""
    return order[step * batch_size : (step + 1) * batch_size]
