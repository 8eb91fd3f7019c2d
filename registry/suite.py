"""What is known about a model suite before any byte of it is read: phases, names, gaps, lineage.

The rules that tie checkpoints, chunks and names together live here and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from llm360.errors import InvalidId, NotFound, NotReleased
from registry.ids import ArtifactId, Kind, whole_number
from registry.revisions import BY_NUMBER, Revisions
from registry.revisions import ByStep as ByStep
from registry.revisions import Numbered as Numbered

ADDRESSABLE = (Kind.CKPT, Kind.CHUNK, Kind.OPTIMIZER, Kind.LOG)  # kinds that run over a suite's indices
NEAREST = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of a run: indices ``first`` to ``last`` in the suite, both included.

    tokens and steps count what the phase trains on; None where the workspace's parameters decide it.
    """

    name: str
    first: int
    last: int
    tokens: int | None = None
    steps: int | None = None

    def __contains__(self, index: int) -> bool:
        return self.first <= index <= self.last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gap:
    """Artifacts that are known not to exist, with the reason and where it is said. indices None: all of the kind."""

    kind: Kind
    indices: tuple[int, ...] | None
    reason: str
    source: str

    def covers(self, artifact: ArtifactId) -> bool:
        """Say whether this gap is about ``artifact``."""
        return artifact.kind == self.kind and (self.indices is None or artifact.index in self.indices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unpublished:
    """A fact of a run that was never published, with the reason and where it is said."""

    reason: str
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkLines:
    """How a data set on the Hub holds a suite's chunks: one JSON-lines file each, a row of tokens per line.

    path is a format string of ``chunk``. A line is ``{"token_ids": [row_tokens integers], "source": kind}``; every
    token is below vocab_size.
    """

    path: str
    row_tokens: int
    vocab_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hub:
    """Where a suite is released on the Hugging Face Hub.

    ckpts names the checkpoints that are known to exist when they are not simply all indices of the phases;
    the whole list is then the repository's branches, ``total`` of them. chunks says how ``dataset`` holds the chunks,
    None where it has none that correspond to checkpoints.
    """

    repo: str
    dataset: str
    chunks: ChunkLines | None = None
    ckpts: tuple[int, ...] | None = None
    total: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A model suite. base is the checkpoint that a fine-tuned suite starts from, branch the one that a suite goes on
    from with other data or another schedule: its own numbers begin at the next. notes are its known irregularities.

    no_order says why the order of its rows cannot be known; None where the ledger gives it.
    """

    name: str
    title: str
    phases: tuple[Phase, ...]
    base: ArtifactId | None = None
    branch: ArtifactId | None = None
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    hub: Hub | None = None
    revisions: Revisions = BY_NUMBER
    no_order: Unpublished | None = None

    @property
    def last(self) -> int:
        """Index of the final checkpoint."""
        return self.phases[-1].last

    def indices(self) -> Iterable[int]:
        """Return the indices in order, of the checkpoints that are known where the suite does not have them all."""
        if self.hub is not None and self.hub.ckpts is not None:
            return self.hub.ckpts
        return range(self.phases[0].first, self.last + 1)

    def phase_of(self, index: int) -> Phase:
        """Return the phase that an index lies in; raises NotFound."""
        for phase in self.phases:
            if index in phase:
                return phase
        raise NotFound(f"{self.name} has no {index}; it has {self.span()}")

    def folder(self, index: int) -> str:
        """Return where an index's artifacts lie: ``<suite>``, or ``<suite>/<phase>`` where there are several phases."""
        phase = self.phase_of(index)
        return self.name if len(self.phases) == 1 else f"{self.name}/{phase.name}"

    def revision(self, ckpt: int) -> str:
        """Return the branch of a checkpoint, such as ``ckpt_355``; raises NotFound."""
        self.phase_of(ckpt)
        return self.revisions.name(self, ckpt)

    def ckpt(self, word: int | str) -> int:
        """Return the index that a number, ``final`` or a branch name means; raises InvalidId."""
        if isinstance(word, str) and word == "final":
            return self.last
        if (index := whole_number(word)) is not None:
            return index
        found = self.revisions.ckpt(self, word) if isinstance(word, str) else None
        if found is None:
            raise InvalidId(
                f"{self.name}: read ckpt {word!r}, expected an index ({self.span()}), 'final' or a branch name; "
                f"for example {self.last} or {self.revision(self.last)!r}"
            )
        return found

    def chunks_seen(self, ckpt: int) -> list[int]:
        """Return the chunks whose tokens a checkpoint was trained on; entry i was read between checkpoints i - 1 and i.

        So a chunk that was repeated is named again, one that was deferred where it was read after all, and one that was
        skipped not at all. Up to its branch a suite read the chunks of the suite it branched from; a fine-tuned suite
        saw its base's. Raises NotFound, NotReleased where chunks and checkpoints do not correspond, StoreUnavailable
        where the ledger is not here and the checkpoint's state does not prove that nothing irregular happened.
        """
        from registry.lineage import chunks_seen

        return chunks_seen(self, ckpt)

    def steps_at(self, ckpt: int) -> int | None:
        """Return the optimizer steps taken up to a checkpoint, where the suite's facts give them."""
        return self._sum(ckpt, [p.steps for p in self.phases])

    def tokens_at(self, ckpt: int) -> int | None:
        """Return the tokens trained on up to a checkpoint, where the suite's facts give them."""
        return self._sum(ckpt, [p.tokens for p in self.phases])

    def _sum(self, ckpt: int, totals: list[int | None]) -> int | None:
        total = 0
        for phase, whole in zip(self.phases, totals, strict=True):
            if whole is None:
                return None
            done = min(max(ckpt - phase.first + 1, 0), phase.last - phase.first + 1)
            total += whole * done // (phase.last - phase.first + 1)
        return total

    def require(self, artifact: ArtifactId) -> None:
        """Raise NotReleased for a known gap and NotFound, with the nearest ids, for an id outside the suite."""
        for gap in self.gaps:
            if gap.covers(artifact):
                raise NotReleased(f"{artifact}: {gap.reason} (source: {gap.source})")
        if self.base is not None and artifact.kind == Kind.CHUNK:
            raise NotReleased(
                f"{artifact}: {self.name} was fine-tuned, not trained on chunks; see its base {self.base}"
            )
        if artifact.kind not in ADDRESSABLE or artifact.index is None:
            raise NotFound(f"{artifact}: {artifact.kind} has no address yet; addressable: {', '.join(ADDRESSABLE)}")
        if self.branch is not None and artifact.index <= (self.branch.index or 0):
            raise NotFound(self._before_the_branch(artifact, self.branch))
        if not any(artifact.index in phase for phase in self.phases):
            raise NotFound(f"{artifact}: not in this suite; nearest: {self.nearest(artifact)}; it has {self.span()}")

    def _before_the_branch(self, artifact: ArtifactId, branch: ArtifactId) -> str:
        there = dataclasses.replace(artifact, suite=branch.suite)
        same = f"{there} is the same point before the branch" if artifact.kind == Kind.CKPT else f"see {there}"
        return f"{artifact}: {self.name} branched off {branch}; {same}; it has {self.span()} itself"

    def nearest(self, artifact: ArtifactId) -> str:
        """Return the ids of the same kind nearest to one that is not there, as text."""
        wanted = artifact.index or 0
        close = sorted(self.indices(), key=lambda i: (abs(i - wanted), i))[:NEAREST]
        return ", ".join(str(dataclasses.replace(artifact, index=i)) for i in close)

    def span(self) -> str:
        """Return the range of indices as text."""
        return f"{self.phases[0].first} to {self.last}"
