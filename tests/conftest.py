"""Fixtures that several packages share: documents from the standard library and a tokenizer trained on them."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import polars as pl
import pytest

from llm360.data.tokenizer import TokenizerParams, train_tokenizer

MODULES = {"arxiv": "argparse bisect calendar cmd", "book": "csv enum difflib dis", "c4": "ftplib glob heapq locale"}


def stdlib_documents(kind: str, modules: str) -> pl.DataFrame:
    """Return one document per standard library module."""
    folder = Path(sysconfig.get_path("stdlib"))
    texts = {m: (folder / f"{m}.py").read_text(encoding="utf-8") for m in modules.split()}
    rows = [
        {"id": f"{kind}/{m}", "kind": kind, "source": "stdlib", "origin": f"{m}.py", "licence": "PSF-2.0", "text": text}
        for m, text in texts.items()
    ]
    return pl.DataFrame(rows)


@pytest.fixture(scope="session")
def documents() -> dict[str, pl.DataFrame]:
    return {kind: stdlib_documents(kind, modules) for kind, modules in MODULES.items()}


@pytest.fixture(scope="session")
def tokenizer(documents):
    texts = [t for frame in documents.values() for t in frame["text"]]
    return train_tokenizer(texts, TokenizerParams(vocab_size=384, sample_mb=1.0, extra_tokens=[], reserved=0))
