"""Work on a recorded run that must be done by as many ranks as the run had: here, or by torchrun on this machine.

``python -m registry.ranks FOLDER`` is one of those ranks: what to do is in the folder, and so is the result.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import ConfigError, LLM360Error, TrainingError
from llm360.files import read_json, write_json
from llm360.progress import say
from registry.store import use_store
from registry.workspace import Workspace

if TYPE_CHECKING:
    from llm360.replay.evidence import Link
    from llm360.train.distributed import World

CALL, RESULT = "call.json", "result.json"


def _tasks() -> Mapping[str, Callable[..., Any]]:
    from registry.replay import replay_here
    from registry.steps import make_here

    return {"replay": replay_here, "steps": make_here}


def with_recorded_ranks(task: str, link: Link, workspace: Workspace, **arguments: Any) -> Any:
    """Return what a task gives for a link, done by as many ranks as the link's checkpoint was made by; JSON values.

    Raises ConfigError inside a run of another number of ranks, TrainingError when ranks started for it fail.
    """
    from llm360.launch import in_ranks
    from llm360.train.distributed import join

    recorded = link.world
    call = {"suite": link.suite, "ckpt": link.ckpt, **arguments}
    if recorded["ranks"] > 1 and not in_ranks():
        return _launched(task, call, workspace, recorded)
    with join(replicas=recorded["replicas"]) as world:
        _require_as_many(link, recorded["ranks"], world)
        with use_store(workspace):
            return _tasks()[task](world=world, **call)


def _require_as_many(link: Link, ranks: int, world: World) -> None:
    if world.size != ranks:
        raise ConfigError(
            f"{link} was made by {ranks} ranks and this run has {world.size}, which gives other last bits; start it "
            f"without torchrun, which then starts {ranks} ranks itself, or with --nproc-per-node {ranks}"
        )


def _launched(task: str, call: Mapping[str, Any], workspace: Workspace, world: Mapping[str, int]) -> Any:
    from llm360.launch import launch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_json(folder / CALL, {"task": task, "root": str(workspace.root.absolute()), **world, "arguments": call})
        code = launch("registry.ranks", [name], ranks=world["ranks"])
        if code or not (folder / RESULT).is_file():
            raise TrainingError(
                f"{call['suite']}/ckpt-{call['ckpt']}: the {world['ranks']} ranks that it needs ended with exit code "
                f"{code}; what they said is above"
            )
        return read_json(folder / RESULT)


def main(argv: Sequence[str] | None = None) -> int:
    """Do a call as one rank; the first one writes the result."""
    from llm360.train.distributed import join

    folder = Path((sys.argv[1:] if argv is None else argv)[0])
    call = read_json(folder / CALL)
    try:
        with join(replicas=call["replicas"]) as world, use_store(Workspace(Path(call["root"]))):
            result = _tasks()[call["task"]](world=world, **call["arguments"])
            if world.leads:
                write_json(folder / RESULT, result)
    except LLM360Error as error:
        say(f"error: {type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
