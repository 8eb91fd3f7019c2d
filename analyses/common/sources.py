"""What analyses read beside a model: a suite's chunks, and where its checkpoints and phases lie in tokens."""

from __future__ import annotations

import registry
from llm360.data.chunks import ChunkReader
from registry.store import store_for
from registry.suite import Suite


def pretrained(suite: Suite) -> Suite:
    """Return the suite that was trained on chunks: the base, and its base, of a finetuned one."""
    return pretrained(registry.suite(suite.base.suite)) if suite.base else suite


def readers(suite: Suite) -> list[ChunkReader]:
    """Return a reader of the chunks of each phase, in order."""
    trained = pretrained(suite)
    found = [(p, registry.resolve(trained.name, chunk=p.first)) for p in trained.phases]
    return [ChunkReader(store_for(trained).folder(artifact)) for _, artifact in found]


def tokens_seen(suite: Suite, ckpt: int) -> int:
    """Return the tokens that a checkpoint was trained on, over the whole suite."""
    return int(registry.resolve(suite.name, ckpt=ckpt).manifest["tokens_seen"])


def phase_start(suite: Suite, ckpt: int) -> int:
    """Return the tokens seen when a checkpoint's phase began."""
    first = suite.phase_of(ckpt).first
    return tokens_seen(suite, first - 1) if first > suite.phases[0].first else 0
