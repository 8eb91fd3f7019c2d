"""How the checkpoints of a suite are named as branches of its repository on the Hub."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from registry.suite import Suite


class Revisions(Protocol):
    """How a suite's checkpoints are named as branches of its repository."""

    def name(self, suite: Suite, ckpt: int) -> str:
        """Return the branch that holds a checkpoint."""
        ...

    def ckpt(self, suite: Suite, name: str) -> int | None:
        """Return the checkpoint that a branch holds; None when the name is not of this form."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbered:
    """Branches ``ckpt_000`` on; ``main`` is the one checkpoint that is the repository's head, if any."""

    main: int | None = None

    def name(self, suite: Suite, ckpt: int) -> str:
        """Return ``ckpt_355``, or ``main``."""
        return "main" if ckpt == self.main else f"ckpt_{ckpt:03d}"

    def ckpt(self, suite: Suite, name: str) -> int | None:
        """Read ``ckpt_355`` or ``main``."""
        if name == "main":
            return self.main
        match = re.fullmatch(r"ckpt_([0-9]{3,})", name)
        found = int(match[1]) if match else None
        return found if found is not None and self.name(suite, found) == name else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByStep:
    """Branches named by phase and step in the phase; a checkpoint's index is its step in the whole suite.

    ``form`` is a format string of ``phase`` (its number, from 1 on) and ``step``.
    """

    form: str
    main: int | None = None

    def name(self, suite: Suite, ckpt: int) -> str:
        """Return the branch of a phase and step, or ``main``."""
        phase = suite.phase_of(ckpt)
        number, step = suite.phases.index(phase) + 1, ckpt - phase.first + 1
        return "main" if ckpt == self.main else self.form.format(phase=number, step=step)

    def ckpt(self, suite: Suite, name: str) -> int | None:
        """Read a branch of this form, or ``main``."""
        if name == "main":
            return self.main
        numbers = [int(n) for n in re.findall(r"[0-9]+", name)]
        if len(numbers) != 2 or self.form.format(phase=numbers[0], step=numbers[1]) != name:
            return None
        if not 1 <= numbers[0] <= len(suite.phases):
            return None
        phase = suite.phases[numbers[0] - 1]
        found = phase.first + numbers[1] - 1
        return found if found in phase else None


BY_NUMBER = Numbered()
