"""The name of an artifact: ``amber/ckpt-355``, ``amber/chunk-12``. What cannot be read is refused, never guessed."""

from __future__ import annotations

import dataclasses
import enum
import operator
import re
from typing import SupportsIndex, cast

from llm360.errors import InvalidId, did_you_mean

FORM, EXAMPLE = "SUITE/KIND-INDEX", "amber/ckpt-355"
SUITE_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
INDEX = re.compile(r"0|[1-9][0-9]*")  # one text per number: no sign, no leading zero


class Kind(enum.StrEnum):
    """The categories of LLM360's release (paper, section 3), each with an address."""

    CHUNK = "chunk"
    CKPT = "ckpt"
    OPTIMIZER = "optimizer"
    LOG = "log"
    EVAL = "eval"
    ANALYSIS = "analysis"
    CONFIG = "config"
    CODE = "code"


WHOLE = (Kind.CONFIG, Kind.CODE)  # one per suite, so without an index


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactId:
    """An artifact's name: suite, kind and index in the suite (None for config and code).

    Raises InvalidId when the parts do not make a name.
    """

    suite: str
    kind: Kind
    index: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.suite, str) or not SUITE_NAME.fullmatch(self.suite):
            raise _invalid(self.suite, "a suite's name is lower-case words joined by '-'")
        if (self.index is None) != (self.kind in WHOLE):
            need = "has no index" if self.kind in WHOLE else "needs an index"
            raise _invalid(f"{self.suite}/{self.kind}", f"{self.kind} {need}")
        if self.index is not None:
            number = whole_number(self.index)
            if number is None or number < 0:
                raise _invalid(self.index, "an index is a whole number from 0 on")
            object.__setattr__(self, "index", number)

    def __str__(self) -> str:
        tail = "" if self.index is None else f"-{self.index}"
        return f"{self.suite}/{self.kind}{tail}"

    @classmethod
    def parse(cls, text: str) -> ArtifactId:
        """Read the text form; raises InvalidId showing the form and an example."""
        suite, slash, rest = text.partition("/")
        word, dash, digits = rest.partition("-")
        if not slash:
            raise _invalid(text, "there is no '/'")
        if word not in list(Kind):
            raise _invalid(text, f"{word!r} is no kind; {did_you_mean(word, (k.value for k in Kind))}")
        if dash and not INDEX.fullmatch(digits):
            raise _invalid(text, f"{digits!r} is no index: digits without sign or leading zeros")
        return cls(suite=suite, kind=Kind(word), index=int(digits) if dash else None)


def whole_number(value: object) -> int | None:
    """Return an integer of any type (numpy's too) as an int; None for all else, and for a bool, which is no index."""
    try:
        return None if isinstance(value, bool) else operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _invalid(read: object, why: str) -> InvalidId:
    return InvalidId(f"read {read!r}, expected {FORM}, for example {EXAMPLE}: {why}")
