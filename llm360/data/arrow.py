"""Arrow arrays straight from memory: ``pyarrow.array`` imports pandas where there is one, half a second a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa


def int64(values: npt.NDArray[Any], *, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as an Arrow int64 array; null where ``valid`` is false."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int64))
    return pa.Array.from_buffers(pa.int64(), len(values), [None if valid is None else _bits(valid), data])


def boolean(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return truth values as an Arrow array."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def strings(values: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array."""
    import pyarrow as pa

    encoded = [v.encode() for v in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(np.packbits(values, bitorder="little"))
