from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import IntegrityError, StorageFull
from llm360.files import (
    MANIFEST,
    copy_file,
    is_whole,
    new_folder,
    read_manifest,
    remove_partial,
    verify,
    write_bytes,
    write_manifest,
)


def make(folder: Path, files: dict[str, bytes]) -> None:
    with new_folder(folder) as partial:
        for name, data in files.items():
            write_bytes(partial / name, data)
        write_manifest(partial, {"format": "test/1"})


def test_a_folder_appears_whole(tmp_path):
    make(tmp_path / "a", {"x": b"1", "sub/y": b"22"})
    assert [e["path"] for e in verify(tmp_path / "a")["files"]] == ["sub/y", "x"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_failure_leaves_the_old_folder_untouched(tmp_path):
    make(tmp_path / "a", {"x": b"old"})
    with pytest.raises(RuntimeError, match="half way"), new_folder(tmp_path / "a") as partial:
        (partial / "x").write_bytes(b"new")
        raise RuntimeError("half way")
    verify(tmp_path / "a")
    assert (tmp_path / "a/x").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@given(data=st.binary(min_size=1, max_size=64), place=st.integers(0, 63), flip=st.integers(1, 255))
def test_any_altered_byte_is_found_and_named(tmp_path_factory, data, place, flip):
    folder = tmp_path_factory.mktemp("f") / "a"
    make(folder, {"weights": data})
    altered = bytearray(data)
    altered[place % len(data)] ^= flip
    (folder / "weights").write_bytes(bytes(altered))
    with pytest.raises(IntegrityError, match=r"weights: sha256 .* expected"):
        verify(folder)


def test_a_cut_or_missing_file_is_named(tmp_path):
    make(tmp_path / "a", {"weights": b"12345", "other": b"1"})
    os.truncate(tmp_path / "a/weights", 3)
    with pytest.raises(IntegrityError, match="weights: 3 bytes, expected 5"):
        verify(tmp_path / "a")
    assert verify(tmp_path / "a", only=("other",))["format"] == "test/1"
    (tmp_path / "a/other").unlink()
    with pytest.raises(IntegrityError, match="other: missing"):
        verify(tmp_path / "a")


def test_whole_means_every_named_file_in_its_size(tmp_path):
    make(tmp_path / "a", {"weights": b"12345", "other": b"1"})
    assert is_whole(tmp_path / "a")
    os.truncate(tmp_path / "a/weights", 3)
    assert not is_whole(tmp_path / "a")
    (tmp_path / "a/weights").unlink()
    assert not is_whole(tmp_path / "a")
    assert not is_whole(tmp_path / "b")


def test_no_manifest_means_not_complete(tmp_path):
    make(tmp_path / "a", {"x": b"1"})
    (tmp_path / "a" / MANIFEST).unlink()
    with pytest.raises(IntegrityError, match="not complete; rebuild it"):
        read_manifest(tmp_path / "a")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_changes_nothing(tmp_path, monkeypatch, code):
    write_bytes(tmp_path / "x", b"old")

    def full(_: int) -> None:
        raise OSError(code, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match=r"x: no space left .* finished work is kept"):
        write_bytes(tmp_path / "x", b"new")
    with pytest.raises(StorageFull, match="no space left"), new_folder(tmp_path / "a") as partial:
        write_bytes(partial / "y", b"1")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert not (tmp_path / "a").exists()


def test_a_full_disk_in_the_words_of_a_rust_library_is_said_too(tmp_path):
    with pytest.raises(StorageFull, match="no space left"), new_folder(tmp_path / "a"):
        raise RuntimeError("I/O error: No space left on device (os error 28)")
    assert not list(tmp_path.iterdir())


def test_a_copy_is_a_file_of_its_own(tmp_path):
    write_bytes(tmp_path / "cache", b"1")
    copy_file(tmp_path / "cache", tmp_path / "sub/file")
    assert (tmp_path / "sub/file").read_bytes() == b"1"
    assert (tmp_path / "sub/file").stat().st_nlink == 1


def test_what_a_kill_left_is_removed(tmp_path):
    make(tmp_path / "a", {"x": b"1"})
    shutil.copytree(tmp_path / "a", tmp_path / ".partial-b")
    (tmp_path / ".partial-c").write_bytes(b"")
    remove_partial(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
