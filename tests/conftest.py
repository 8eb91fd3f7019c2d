"""Fixtures that several packages share: documents from the standard library and a tokenizer trained on them."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import polars as pl
import pytest

from llm360.data.chunking.build import Build, build_chunks
from llm360.data.chunks import ChunkReader
from llm360.data.documents import Document, read_documents, write_documents
from llm360.data.mixture import ChunkParams
from llm360.data.tokens.encoder import prove_encoder
from llm360.data.tokens.tokenizer import TokenizerParams, train_tokenizer
from llm360.files import new_folder, sha256_file, write_manifest
from llm360.processes import Workers

FIM = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
MODULES = {"arxiv": "argparse bisect calendar cmd", "book": "csv enum difflib dis", "c4": "ftplib glob heapq locale"}


def stdlib_documents(kind: str, modules: str) -> list[Document]:
    """Return one document per standard library module."""
    folder = Path(sysconfig.get_path("stdlib"))
    texts = {m: (folder / f"{m}.py").read_text(encoding="utf-8") for m in modules.split()}
    common = {"kind": kind, "source": "stdlib", "licence": "PSF-2.0"}
    return [Document(id=f"{kind}/{m}", origin=f"{m}.py", text=text, **common) for m, text in texts.items()]


def write_kind(folder: Path, documents: list[Document]) -> Path:
    """Write a kind's documents as its stage does."""
    folder.mkdir(parents=True)
    write_manifest(folder, {"parts": write_documents(folder, documents)})
    return folder


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> dict[str, Path]:
    """Return a folder of documents for each kind."""
    root = tmp_path_factory.mktemp("sources")
    return {kind: write_kind(root / kind, stdlib_documents(kind, modules)) for kind, modules in MODULES.items()}


@pytest.fixture(scope="session")
def documents(sources) -> dict[str, pl.DataFrame]:
    return {kind: read_documents(folder) for kind, folder in sources.items()}


@pytest.fixture(scope="session")
def tokenizer(documents):
    texts = [t for frame in documents.values() for t in frame["text"]]
    params = TokenizerParams(kinds=[*MODULES], vocab_size=384, sample_mb=1.0, extra_tokens=FIM, reserved=0)
    return train_tokenizer(texts, params)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory, tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    prove_encoder(folder, documents=())
    return folder


@pytest.fixture(scope="session")
def make_chunks(tmp_path_factory, sources, tokenizer_folder) -> Callable[..., ChunkReader]:
    """Return a function that builds chunks of the documents above into a folder and returns their reader."""

    def make(folder: Path, params: ChunkParams, *, workers: int = 1, **changed: Any) -> ChunkReader:
        given = {"sources": sources, "tokenizer": tokenizer_folder, "work": tmp_path_factory.mktemp("work")} | changed
        with new_folder(folder) as partial, Workers(workers) as pool:
            made_from = {"tokenizer_sha256": sha256_file(tokenizer_folder / "tokenizer.json")}
            write_manifest(partial, build_chunks(partial, Build(params=params, workers=pool, **given)) | made_from)
        return ChunkReader(folder)

    return make
