from __future__ import annotations

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.data.chunking import shards
from llm360.data.chunking.shards import Shard, create_array, inner_rows, shard_path, token_dtype, write_shard
from llm360.errors import IntegrityError

WIDTH = 5


def write(folder, rows, shard_rows, block=7):
    create_array(folder, rows=len(rows), shard_rows=shard_rows, row_tokens=WIDTH, dtype=rows.dtype)
    for number, start in enumerate(range(0, len(rows), shard_rows)):
        part = rows[start : start + shard_rows]
        blocks = (part[i : i + block] for i in range(0, len(part), block))
        write_shard(folder / shard_path(number), blocks, shard_rows=shard_rows)


def opened(folder, number, rows, shard_rows):
    return Shard(
        folder / shard_path(number), rows=rows, shard_rows=shard_rows, row_tokens=WIDTH, dtype=np.dtype(np.uint16)
    )


def numbered(count, dtype=np.uint16):
    return np.random.default_rng(count).integers(0, 2**16, (count, WIDTH)).astype(dtype)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 300), shard_rows=st.integers(1, 130), block=st.integers(1, 90), whole=st.booleans())
def test_zarr_and_we_read_what_was_written(tmp_path_factory, count, shard_rows, block, whole):
    folder, rows = tmp_path_factory.mktemp("shards"), numbered(count)
    write(folder, rows, shard_rows, block)
    np.testing.assert_array_equal(zarr.open_array(folder, mode="r")[:], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "WHOLE_BYTES", 1 << 25 if whole else 0)
        for number, start in enumerate(range(0, count, shard_rows)):
            part = rows[start : start + shard_rows]
            shard = opened(folder, number, len(part), shard_rows)
            np.testing.assert_array_equal(shard.all(), part)
            picked = np.random.default_rng(1).integers(0, len(part), 9)
            np.testing.assert_array_equal(shard.some(picked), part[picked])


def test_the_bytes_are_those_that_zarr_writes(tmp_path):
    rows = numbered(130, np.uint32)
    write(tmp_path / "ours", rows, 64)
    array = zarr.create_array(
        store=tmp_path / "theirs",
        shape=rows.shape,
        shards=(64, WIDTH),
        chunks=(64, WIDTH),
        dtype=np.uint32,
        compressors=zarr.codecs.ZstdCodec(level=shards.LEVEL),
    )
    for start in range(0, 130, 64):
        array[start : start + 64] = rows[start : start + 64]
    files = sorted(p.relative_to(tmp_path / "theirs") for p in (tmp_path / "theirs").rglob("*") if p.is_file())
    assert files
    for name in files:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_the_block_size_does_not_show(tmp_path):
    for block in (1, 7, 64, 500):
        write(tmp_path / str(block), numbered(200), 100, block)
    assert len({(tmp_path / b / "c/1/0").read_bytes() for b in ("1", "7", "64", "500")}) == 1


@pytest.mark.parametrize("place", [-1, -15, 3])
def test_damage_is_named(tmp_path, place):
    write(tmp_path, numbered(64), 64)
    data = bytearray((tmp_path / "c/0/0").read_bytes())
    data[place] ^= 0xFF
    (tmp_path / "c/0/0").write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=r"c/0/0: (its index|inner chunk 0) is damaged"):
        opened(tmp_path, 0, 64, 64).all()


def test_a_cut_file_is_named(tmp_path):
    write(tmp_path, numbered(64), 64)
    path = tmp_path / "c/0/0"
    path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(IntegrityError, match="its index is damaged; pull this file again"):
        opened(tmp_path, 0, 64, 64)


def test_sizes():
    assert [inner_rows(n) for n in (1, 48, 64, 1711, 1706976, 2112000)] == [1, 48, 64, 59, 48, 64]
    assert (token_dtype(65536), token_dtype(65537)) == (np.uint16, np.uint32)
