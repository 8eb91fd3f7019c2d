from __future__ import annotations

import pytest

from llm360.data.packaged.archives import members, unpack
from llm360.errors import IntegrityError, SourceError

FILES = {"usr/share/doc/fake/a.html": b"<p>a</p>", "usr/share/doc/fake/deep/b.html": b"", "usr/bin/fake": b"\x7fELF"}


@pytest.mark.parametrize("compression", ["xz", "gz", "bz2"])
def test_a_deb_is_unpacked_by_pattern(make_deb, tmp_path, compression):
    root = tmp_path / "root"
    assert unpack(make_deb(FILES, compression=compression), root, reads=("usr/share/doc/fake/*.html",)) == 2
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert found == {name: data for name, data in FILES.items() if name.endswith(".html")}


def test_a_wheel_is_read_like_a_deb(make_wheel, make_deb):
    assert dict(members(make_wheel(FILES), ("*",))) == dict(members(make_deb(FILES), ("*",))) == FILES


def test_links_are_not_followed(make_deb, tmp_path):
    deb = make_deb(FILES, links={"usr/evil": "/etc/passwd"})
    assert set(dict(members(deb, ("*",)))) == set(FILES)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "usr/../../evil", "usr\\..\\evil"])
def test_a_path_out_of_the_folder_is_refused(make_deb, make_wheel, tmp_path, name):
    for archive in (make_deb({name: b"x"}), make_wheel({name: b"x"})):
        with pytest.raises(IntegrityError, match="leaves the folder"):
            unpack(archive, tmp_path / "root", reads=("*",))
    assert not (tmp_path / "evil").exists()


def test_nothing_that_matches_is_an_error(make_deb, tmp_path):
    with pytest.raises(SourceError, match=r"nothing in it matches \*\.tex"):
        unpack(make_deb(FILES), tmp_path / "root", reads=("*.tex",))


def test_every_truncation_is_named(make_deb, make_wheel):
    for archive in (make_deb(FILES), make_wheel(FILES)):
        whole = archive.read_bytes()
        for size in (0, 7, 40, 100, len(whole) // 2, len(whole) - 40):
            archive.write_bytes(whole[:size])
            with pytest.raises(IntegrityError, match=archive.name):
                list(members(archive, ("*",)))
