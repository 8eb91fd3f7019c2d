"""What was irregular in a run: from its ledger's events or, where only checkpoints are at hand, from their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm360.checkpoint import TrainState

EVENTS = ("world_changed", "chunk_deferred", "chunk_skipped", "step_skipped")
TURNS = {"retry": "chunk_retried", "repeat": "chunk_repeated"}


def from_events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a phase's irregular events, each with ``ckpt``: the first checkpoint after it, None before there is one.

    A chunk that was read after all, and one that was read again to complete the schedule, are events of their own:
    chunk_retried and chunk_repeated, whose ``step`` is the first of that pass.
    """
    found: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    turn = "first"
    for event in events:
        if event["event"] == "chunk_started":
            turn = event["turn"]
        elif event["event"] in EVENTS:
            waiting.append(dict(event))
        elif event["event"] == "chunk_finished":
            waiting += [_later(turn, event)] if turn in TURNS else []
            found += [entry | {"ckpt": event["ckpt"]} for entry in waiting]
            waiting = []
    return found + [entry | {"ckpt": None} for entry in waiting]


def _later(turn: str, finished: Mapping[str, Any]) -> dict[str, Any]:
    first_step = finished["step"] - finished["steps"] + 1
    return {"event": TURNS[turn], "chunk": finished["chunk"], "step": first_step}


def from_states(before: Sequence[TrainState], now: TrainState) -> list[str]:
    """Return the kinds of events about chunks that led to a checkpoint; ``before`` are the phase's earlier ones."""
    deferred, skipped = (len(before[-1].deferred), len(before[-1].skipped)) if before else (0, 0)
    repeated = now.chunk in {state.chunk for state in before}
    retried = not repeated and now.chunk in {failure.chunk for failure in now.deferred}
    told = {"chunk_deferred": len(now.deferred) > deferred, "chunk_skipped": len(now.skipped) > skipped}
    told |= {"chunk_retried": retried, "chunk_repeated": repeated}
    return [kind for kind, happened in told.items() if happened]
