"""Every error that this project raises on purpose.

LLM360Error
 ├ ConfigError (ValueError)          a parameter that is unknown, missing or of the wrong type
 ├ SourceError                       a package or corpus that cannot be had here
 ├ DataError (ValueError)            data that cannot give what was asked of it
 ├ TrainingError                     a loss or gradient that is not finite, a state that does not fit
 ├ IntegrityError                    bytes that are not the bytes that were written
 ├ FingerprintMismatch               an output made by another configuration
 ├ WorkerError                       a process of several that ended before its task did
 ├ Locked                            another process is writing the same output
 ├ StorageFull (OSError)             no room left; what existed is untouched
 └ RegistryError
    ├ InvalidId (ValueError)         an id that cannot be read
    ├ UnknownSuite (KeyError)        no such suite; the nearest names
    ├ NotFound (KeyError)            no such artifact; the nearest ids
    ├ NotReleased                    a known gap, with its reason and source
    └ StoreUnavailable               offline, or not built; the command that would bring it

Each message says what was read, what was expected and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LLM360Error(Exception):
    """Base of the tree; catch it to catch all of them."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print its repr


class ConfigError(LLM360Error, ValueError):
    """A parameter that is unknown, missing or of the wrong type."""


class SourceError(LLM360Error):
    """A package or corpus that cannot be had here."""


class DataError(LLM360Error, ValueError):
    """Data that cannot give what was asked of it: empty, too small, not UTF-8."""


class TrainingError(LLM360Error):
    """A loss that is not finite, or a state that does not fit the run."""


class IntegrityError(LLM360Error):
    """A file whose bytes are not the ones that its manifest names."""


class FingerprintMismatch(LLM360Error):
    """An output that another configuration made."""


class WorkerError(LLM360Error):
    """A worker process that ended before its task did; finished files are kept."""


class Locked(LLM360Error):
    """Another process is writing the same output."""


class StorageFull(LLM360Error, OSError):
    """No room left on the device; what existed before is untouched."""


class RegistryError(LLM360Error):
    """Base of what the registry raises."""


class InvalidId(RegistryError, ValueError):
    """An id that cannot be read; the message shows the form and an example."""


class UnknownSuite(RegistryError, KeyError):
    """No suite of that name; the message names the nearest ones."""


class NotFound(RegistryError, KeyError):
    """No such artifact; the message names the nearest ids and where they were looked for."""


class NotReleased(RegistryError):
    """An artifact known not to exist, with the suite's reason and its source."""


class StoreUnavailable(RegistryError, ConnectionError):
    """The place that holds the artifact cannot be reached; the message says what would bring it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as ``did you mean 'ckpt'? Known: ckpt, chunk``."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{hint}Known: {', '.join(names)}"
