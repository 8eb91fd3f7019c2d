"""Order: pure functions from names and numbers to permutations.

Philox is counter based and its raw output is fixed by its definition (Salmon et al. 2011), unlike numpy's
``Generator.permutation``, which may change between releases. So an order computed today is the order of any year.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
ROUNDS = 12  # of the Feistel network; see tests for what it is held to


def permutation(size: int, *words: object) -> Indices:
    """Return a permutation of range(size), int64, that depends on ``words`` and nothing else."""
    return np.argsort(_raw(size, words), kind="stable").astype(np.int64)


def _raw(size: int, words: tuple[object, ...]) -> npt.NDArray[np.uint64]:
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return np.random.Philox(key=np.frombuffer(digest[:16], dtype="<u8")).random_raw(size)


def shuffled(index: Indices, size: int, *words: object) -> Indices:
    """Return where a permutation of range(size) sends each ``index``, in memory that does not depend on ``size``.

    A Feistel network over the least power of two that holds ``size`` is a bijection whatever its round function is
    (Luby and Rackoff 1988); what falls outside range(size) is sent on until it is inside (cycle walking, Black and
    Rogaway 2002), which keeps it one.
    """
    bits = max(2, (int(size) - 1).bit_length())
    keys = _raw(ROUNDS, words)
    out = _feistel(np.asarray(index).astype(np.uint64), bits, keys)
    while (outside := out >= size).any():
        out[outside] = _feistel(out[outside], bits, keys)
    return out.astype(np.int64)


def _feistel(x: npt.NDArray[np.uint64], bits: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    low_bits = np.uint64(bits // 2)
    masks = np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << (bits // 2)) - 1)
    halves = [x >> low_bits, x & masks[1]]
    for number, key in enumerate(keys):
        to = number % 2
        halves[to] = halves[to] ^ (_mix(halves[1 - to] + key) & masks[to])
    return halves[0] << low_bits | halves[1]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit of ``x`` reaches every bit of the result."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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
