"""A corpus of real text that every machine with this project has: the text files of the installed Python packages.

Nothing is downloaded. The order is that of the sha256 of each file's path inside its root, so a corpus of 25 MB is
the beginning of one of 400 MB and has its mixture of Python, C headers, JSON, reStructuredText and prose.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from llm360.data.documents import Document, PartWriter, part_path
from llm360.files import sha256_bytes, write_manifest
from llm360.progress import say

KIND = "installed"
PART_BYTES = 8_000_000  # a unit of work, at most
PROVEN = 500  # documents that the faster encoder is proven on
LARGEST_FILE = 1_000_000  # above it are a few generated tables, which would weigh more than all prose
CODE = (".c", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".js", ".pxd", ".py", ".pyi", ".pyx")
PROSE = (".css", ".csv", ".cfg", ".html", ".ini", ".json", ".md", ".rst", ".toml", ".txt", ".xml", ".yaml", ".yml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """One corpus in both forms: documents is a folder of Parquet parts with a manifest, jsonl one of JSON lines.

    bytes are of the texts' UTF-8; sha256 is of all texts in their order.
    """

    documents: Path
    jsonl: Path
    count: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """A text file: its path inside the root, and what it holds."""

    path: str
    text: str


def build_corpus(folder: Path, *, megabytes: float) -> Corpus:
    """Write the first ``megabytes`` (of 1,000,000 bytes) of the installed text, in both forms, into ``folder``."""
    whole, parts, count = hashlib.sha256(), [], 0
    texts_of_size = _cut(installed_texts(), int(megabytes * 1e6))
    for number, texts in enumerate(_parts(texts_of_size, part_bytes=part_bytes(megabytes * 1e6))):
        parts.append(_write_part(folder / "documents", number, texts))
        _write_jsonl(folder / "jsonl" / f"part_{number:05d}.jsonl", texts)
        count += len(texts)
        for text in texts:
            whole.update(text.text.encode())
    write_manifest(folder / "documents", {"parts": parts})
    size = sum(int(str(part["bytes"])) for part in parts)
    if size < megabytes * 1e6:
        raise SystemExit(
            f"the installed packages hold {size / 1e6:.0f} MB of text, expected {megabytes:.0f}; "
            f"install more packages or ask for less: --mb, --memory-mb"
        )
    say(f"corpus: {size / 1e6:.0f} MB, {count} documents, {len(parts)} parts")
    return Corpus(
        documents=folder / "documents", jsonl=folder / "jsonl", count=count, bytes=size, sha256=whole.hexdigest()
    )


def installed_texts() -> Iterator[Text]:
    """Yield every text file of the standard library and of site-packages once, in the order of its path's hash."""
    seen: set[str] = set()
    for path, name in _files():
        with contextlib.suppress(UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
            digest = sha256_bytes(text.encode())
            if text and digest not in seen:
                seen.add(digest)
                yield Text(path=name, text=text)


def _files() -> list[tuple[Path, str]]:
    """Return each file with its name: the path below the first root that holds it."""
    roots = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    found = {path: path.relative_to(root).as_posix() for root in sorted(roots) for path in _text_files(root)}
    return sorted(found.items(), key=lambda item: (sha256_bytes(item[1].encode()), item[0]))


def _text_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix in CODE + PROSE and path.is_file() and path.stat().st_size <= LARGEST_FILE:
            yield path


def _cut(texts: Iterator[Text], size: int) -> Iterator[Text]:
    """Yield texts of ``size`` bytes in all; the last one is cut, and what is left of a character becomes spaces."""
    left = size
    for text in texts:
        data = text.text.encode()
        if len(data) >= left:
            kept = data[:left].decode(errors="ignore")
            yield Text(path=text.path, text=kept + " " * (left - len(kept.encode())))
            return
        left -= len(data)
        yield text


def part_bytes(size: float) -> float:
    """Return the size of a part, such that an even number of them makes ``size``: two workers get equal shares."""
    return size / (2 * math.ceil(size / (2 * PART_BYTES)))


def _parts(texts: Iterator[Text], *, part_bytes: float) -> Iterator[list[Text]]:
    part: list[Text] = []
    size, wanted = 0, part_bytes
    for text in texts:
        part.append(text)
        size += len(text.text.encode())
        if size >= wanted - 1:
            yield part
            part, wanted = [], wanted + part_bytes
    if part:
        yield part


def _write_part(folder: Path, number: int, texts: list[Text]) -> dict[str, str | int]:
    with PartWriter(folder / part_path(number)) as writer:
        for i, text in enumerate(texts):
            writer.add(_document(f"{number:05d}-{i:05d}", text))
    return {"path": part_path(number), "file": number, "documents": writer.documents, "bytes": writer.bytes}


def _document(name: str, text: Text) -> Document:
    return Document(id=name, kind=KIND, source="packages", origin=text.path, licence="unknown", text=text.text)


def _write_jsonl(path: Path, texts: list[Text]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": text.path, "text": text.text}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text("".join(lines), encoding="utf-8")


def read_texts(corpus: Corpus, *, worker: int, workers: int) -> Iterator[list[str]]:
    """Yield the texts of every ``workers``-th part, a part at a time, beginning with part ``worker``."""
    for path in sorted(corpus.jsonl.iterdir())[worker::workers]:
        with open(path, encoding="utf-8") as lines:
            yield [json.loads(line)["text"] for line in lines]


def build_tokenizer(folder: Path, corpus: Corpus, *, vocab_size: int, sample_mb: float) -> Path:
    """Train a byte-level BPE on the first ``sample_mb`` of the corpus and save it into ``folder``."""
    from llm360.data.tokens.encoder import prove_encoder
    from llm360.data.tokens.tokenizer import TokenizerParams, train_tokenizer

    params = TokenizerParams(kinds=["web"], vocab_size=vocab_size, sample_mb=sample_mb, extra_tokens=[], reserved=0)
    wanted = range(max(1, round(sample_mb * 1e6 / part_bytes(corpus.bytes))))
    texts = [text for _, part in zip(wanted, read_texts(corpus, worker=0, workers=1), strict=False) for text in part]
    train_tokenizer(texts, params).save_pretrained(folder)
    prove_encoder(folder, documents=texts[:PROVEN])
    say(f"tokenizer: {vocab_size} tokens of {sum(map(len, texts)) / 1e6:.0f} million characters")
    return folder
