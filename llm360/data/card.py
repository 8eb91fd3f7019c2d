"""The data card: what a phase's chunks are made of, from which packages and corpora, under which licences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FILE = "README.md"
INTERPRETER = (
    "The interpreter's licence is in its own installation, not among the artifacts: `LICENSE.txt` in the standard "
    "library's folder, or `python -c 'license()'`."
)


def data_card(chunks: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a dataset card in Markdown with the Hub's front matter.

    ``chunks`` are the fields of a chunks manifest, ``sources`` the sources' manifests by kind.
    """
    licences = sorted({s["licence"] for kind in sources.values() for s in kind["sources"]})
    texts = [*_texts(sources), *_corpora(sources), *_packages(sources)]
    return "\n".join([*_front_matter(chunks, licences), *_mixture(chunks), *texts, ""])


def _front_matter(chunks: Mapping[str, Any], licences: list[str]) -> Iterator[str]:
    yield from ("---", "language: [en, code]", "license: other", f"license_name: {'; '.join(licences)}", "---", "")
    yield f"# Data of {chunks['suite']}, {chunks['phase']}"
    yield ""
    rows = sum(k["rows"] for k in chunks["kinds"].values())
    tokens = rows * chunks["sequence_length"]
    yield f"{rows:,} rows of {chunks['sequence_length']} tokens and the next one, in {chunks['chunks']} chunks: "
    yield f"{tokens:,} tokens to predict. Each row's documents are named in `provenance/`."
    yield ""


def _mixture(chunks: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "## Mixture",
        "",
        "| kind | weight | rows | rows available | passes | part |",
        "|---|---|---|---|---|---|",
    )
    for kind, counts in chunks["kinds"].items():
        weight, part = chunks["mixture"][kind]["weight"], chunks["mixture"][kind]["part"]
        rows, available = counts["rows"], counts["rows_available"]
        yield f"| {kind} | {weight} | {rows} | {available} | {rows / available:.2f} | {part} |"
    yield ""


def _texts(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("## Texts", "", "| kind | source | documents | MB | skipped | licence |", "|---|---|---|---|---|---|")
    for kind, manifest in sources.items():
        for source in manifest["sources"]:
            size = f"{source['bytes'] / 1e6:.2f}"
            counts = f"{source['documents']} | {size} | {source['skipped']}"
            yield f"| {kind} | {source['name']} | {counts} | {source['licence']} |"
    yield ""


def _corpora(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    corpora = {kind: manifest["corpus"] for kind, manifest in sources.items() if "corpus" in manifest}
    if corpora:
        yield from ("## Corpora", "", "| kind | from | selected by | not selected | files and hashes |")
        yield "|---|---|---|---|---|"
    for kind, corpus in corpora.items():
        chosen = ", ".join(f"{field} = {value}" for field, value in corpus["where"].items()) or "all"
        left = sum(source["not_selected"] for source in sources[kind]["sources"])
        yield f"| {kind} | {_place(corpus)} | {chosen} | {left} | `artifacts/sources/{kind}/inputs.jsonl` |"
    yield from ("",) if corpora else ()


def _place(corpus: Mapping[str, Any]) -> str:
    hub, files = corpus["hub"], corpus["files"]
    if hub is not None:
        part = [hub[key] for key in ("config", "data_dir", "split") if hub[key] is not None]
        return f"{hub['dataset']} at `{hub['revision']}` ({', '.join(part)})"
    return f"own files in {files['format']}: {', '.join(f'`{p}`' for p in files['patterns'])}"


def _packages(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    found = [p for manifest in sources.values() for source in manifest["sources"] for p in source["packages"]]
    if not found:
        return
    yield from ("## Packages", "", "| package | version | sha256 | licence text |", "|---|---|---|---|")
    packages = {(p["name"], p["version"], p["sha256"], p["licence"]) for p in found}
    for name, version, sha256, licence in sorted(packages, key=str):
        text = f"`artifacts/packages/{licence}`" if licence else "with the interpreter"
        yield f"| {name} | {version} | {sha256 or 'part of the interpreter'} | {text} |"
    if not all(p["licence"] for p in found):
        yield from ("", INTERPRETER)
