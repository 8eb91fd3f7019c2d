"""Replay: a checkpoint made again from its parent and its chunk, and compared with what is on disk, byte by byte."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.config import fingerprint, from_mapping
from llm360.data.chunks import ChunkReader
from llm360.environment import use_threads
from llm360.errors import ConfigError, IntegrityError, did_you_mean
from llm360.replay.compare import FileDifference, compare
from llm360.replay.evidence import Culprit, Link, altered, circumstances
from llm360.train.params import PhaseParams
from llm360.train.phase import next_checkpoint

if TYPE_CHECKING:
    from llm360.train.distributed import World

BEFORE = "identical when it was replayed before"
UNFIT = ("parent", "data")  # altered, they are nothing to start from
NAMED = 3  # files whose differences a culprit tells


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """Whether a checkpoint follows from its parent and its chunk, and if not, why.

    identical: it was made again with the same bytes, and nothing that it was made from is altered. culprits are empty
    then; notes tell of what is different here and made no difference. files are those that differ, recorded against
    replayed. steps were taken in seconds (wall, with reading and writing); none when the evidence was not fit to
    start from.
    """

    suite: str
    ckpt: int
    identical: bool
    culprits: tuple[Culprit, ...]
    notes: tuple[str, ...]
    files: tuple[FileDifference, ...]
    steps: int
    seconds: float

    def __str__(self) -> str:
        verdict = "identical" if self.identical else f"differs; {'; '.join(map(str, self.culprits))}"
        return f"{self.suite}/ckpt-{self.ckpt}: {verdict}"


def replay(link: Link, *, changed: Mapping[str, Any], scratch: Path, world: World) -> ReplayReport:
    """Make a checkpoint again in ``scratch``, which is removed, and compare; ``changed`` asks what if, by dotted key.

    Every rank calls it, the first one's report counts. Nothing is trained from a parent or on a chunk that is altered.
    Raises ConfigError for a param that there is not.
    """
    started = time.monotonic()
    wrong = altered(link)
    if any(c.what in UNFIT for c in wrong) or not _readable(link):
        return _report(link, wrong, steps=0, seconds=time.monotonic() - started)
    params = asked(link.recipe["params"], changed)
    with recorded_setting(link):
        around = circumstances(link, ranks=world.size, changed=changed)
        chunks, fields = ChunkReader(link.chunks), recorded_fields(link)
        try:
            steps = next_checkpoint(params, parent=link.parent, chunks=chunks, out=scratch, fields=fields, world=world)
            files = compare(link.folder, scratch) if world.leads else ()
        finally:
            if world.leads:
                shutil.rmtree(scratch, ignore_errors=True)
    return _report(link, wrong, around, files, steps=len(steps), seconds=time.monotonic() - started)


def recorded_fields(link: Link) -> dict[str, Any]:
    """Return what the run put into every manifest, which a replay puts there too: how it differs is told apart."""
    recipe = link.recipe
    return {"fingerprint": fingerprint(recipe), "environment": recipe["environment"], "world": link.world}


def _readable(link: Link) -> bool:
    """Return whether there is a recipe to replay."""
    with contextlib.suppress(IntegrityError):
        return {"params", "environment"} <= link.recipe.keys()
    return False


def _report(
    link: Link,
    wrong: Sequence[Culprit],
    around: Sequence[Culprit] = (),
    files: tuple[FileDifference, ...] = (),
    *,
    steps: int,
    seconds: float,
) -> ReplayReport:
    culprits = [*wrong, *(around if files else ())]
    sizes = "; ".join(map(str, files[:NAMED]))
    if files and any(c.what == "weights" for c in wrong):
        culprits.append(Culprit(what="weights", detail=f"against a replay: {sizes}"))
    elif files and not culprits:
        culprits.append(
            Culprit(what="weights", detail=f"it does not follow from its parent {link.parent.name}: {sizes}")
        )
    return ReplayReport(
        suite=link.suite,
        ckpt=link.ckpt,
        identical=not culprits,
        culprits=tuple(culprits),
        notes=() if files else tuple(f"{c}, which made no difference" for c in around),
        files=files,
        steps=steps,
        seconds=seconds,
    )


def confirmed(link: Link) -> ReplayReport:
    """Return the report of a checkpoint that was identical before, in this environment, and is not altered since."""
    return dataclasses.replace(_report(link, (), steps=0, seconds=0.0), notes=(BEFORE,))


def asked(recorded: Mapping[str, Any], changed: Mapping[str, Any]) -> PhaseParams:
    """Return a recipe's params with values changed by dotted key; raises ConfigError for a key that there is not."""
    values: Mapping[str, Any] = recorded
    for key, value in changed.items():
        values = _replaced(values, key.split("."), value, key)
    return from_mapping(PhaseParams, values, where="params")


def _replaced(values: Any, keys: Sequence[str], value: Any, whole: str) -> Mapping[str, Any]:
    first, *rest = keys
    if not isinstance(values, Mapping) or first not in values:
        known = values if isinstance(values, Mapping) else ()
        raise ConfigError(f"params: no {whole!r} to change; {did_you_mean(first, map(str, known))}")
    return {**values, first: _replaced(values[first], rest, value, whole) if rest else value}


@contextlib.contextmanager
def recorded_setting(link: Link) -> Iterator[None]:
    """Compute with the recorded number of threads, deterministically; the caller's settings come back after it."""
    import torch

    with torch.random.fork_rng(), settings_kept():
        use_threads(int(link.recipe["environment"]["threads"]))
        yield


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Put back what ``use_threads`` changes of torch."""
    import torch

    cudnn = torch.backends.cudnn
    flags = cudnn.allow_tf32, cudnn.benchmark
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_float32_matmul_precision(precision)
        cudnn.allow_tf32, cudnn.benchmark = flags
