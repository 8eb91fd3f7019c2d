from __future__ import annotations

import os
from pathlib import Path

import pytest

from llm360.data.packaged import packages
from llm360.data.packaged.packages import DebianPackage, PythonPackage, fetch_packages, recorded
from llm360.errors import SourceError
from llm360.files import read_manifest, verify


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "packages"
    path.mkdir()
    return path


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Put an apt-get on the path that runs a shell script with its words as arguments."""

    def write(script: str) -> Path:
        tool = tmp_path / "bin" / "apt-get"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return tmp_path / "calls"

    return write


def test_debian_packages_come_in_one_go_with_version_hash_and_licence(make_deb, apt, folder):
    deb = make_deb({"usr/share/doc/fake/copyright": b"free"})
    calls = apt(f'case "$*" in *download*) cp {deb} . ;; esac')
    fetch_packages([DebianPackage("fake"), DebianPackage("fake")], folder)
    update, download = calls.read_text().splitlines()
    assert update.endswith("update")
    assert download.endswith("download fake")
    assert "APT::Sandbox::User=root" in download
    entry = recorded(DebianPackage("fake"), folder)
    assert (entry.version, entry.origin, entry.file) == ("1:2.0-1", "Debian", deb.name)
    assert (folder / str(entry.licence)).read_bytes() == b"free"
    assert verify(folder)["packages"][0]["sha256"] == entry.sha256


def test_apt_keeps_its_state_in_a_folder_of_its_own_that_goes_away(apt, folder):
    calls = apt('case "$*" in *download*) exit 1 ;; esac')
    with pytest.raises(SourceError):
        fetch_packages([DebianPackage("fake")], folder)
    state = next(w for w in calls.read_text().split() if w.startswith("Dir::State=")).removeprefix("Dir::State=")
    assert not state.startswith("/var")
    assert not Path(state).exists()


def test_without_apt_the_alternative_is_named(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SourceError, match=r"no apt-get here.*make repro SOURCES=python"):
        fetch_packages([DebianPackage("fake")], folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("E: Unable to locate package fake", "no package fake here"),
        ("W: Failed to fetch x  Could not connect\nE: Unable to locate package fake", "check the network"),
        ("E: dpkg is unhappy", r"apt-get failed \(E: dpkg is unhappy\)"),
    ],
)
def test_what_apt_says_becomes_advice(apt, folder, stderr, message):
    apt(f"case \"$*\" in *download*) printf '%s' '{stderr}' >&2; exit 100 ;; esac")
    with pytest.raises(SourceError, match=message):
        fetch_packages([DebianPackage("fake")], folder)


def test_a_wheel_is_found_by_its_normalised_name(make_wheel, folder, monkeypatch):
    wheel = make_wheel({"fake_text/a.py": b"", "fake_text-1.5.dist-info/METADATA": b"License: MIT"})
    monkeypatch.setattr(packages, "_fetch_python", lambda requirements, to: wheel.rename(to / wheel.name))
    fetch_packages([PythonPackage("Fake.Text==1.5")], folder)
    entry = recorded(PythonPackage("fake-text==1.5"), folder)
    assert (entry.name, entry.version, entry.origin) == ("fake-text", "1.5", "PyPI")
    assert (folder / str(entry.licence)).read_bytes() == b"License: MIT"


def test_pip_without_a_network_says_so(folder, monkeypatch):
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(packages, "RETRIES", 1)
    with pytest.raises(SourceError, match=r"pip: no answer.*check the network"):
        fetch_packages([PythonPackage("fake==1.5")], folder)


def test_no_packages_make_an_empty_manifest(folder):
    fetch_packages([], folder)
    assert read_manifest(folder) == {"packages": [], "files": []}


def test_a_package_that_was_not_fetched_is_named(folder):
    fetch_packages([], folder)
    with pytest.raises(SourceError, match=r"no PyPI package 'sympy'.*stages\.packages"):
        recorded(PythonPackage("sympy==1.14.0"), folder)
