"""Archives made from a mapping of member names to contents."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest


def ar_member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


def tar(members: dict[str, bytes], compression: str, links: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"./{name}" if not name.startswith(("/", "..")) else name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def make_deb(tmp_path):
    def make(members: dict[str, bytes], name="fake_1%3a2.0-1_all.deb", compression="xz", links=None) -> Path:
        path = tmp_path / name
        data = ar_member(f"data.tar.{compression}", tar(members, compression, links or {}))
        path.write_bytes(b"!<arch>\n" + ar_member("debian-binary", b"2.0") + ar_member("control.tar.xz", b"odd") + data)
        return path

    return make


@pytest.fixture
def make_wheel(tmp_path):
    def make(members: dict[str, bytes], name="fake_text-1.5-py3-none-any.whl") -> Path:
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return path

    return make
