"""Strict configuration: a frozen dataclass from a mapping, and the fingerprint of a configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from llm360.errors import ConfigError, did_you_mean

T = TypeVar("T")


def from_mapping(cls: type[T], mapping: Mapping[str, Any], *, where: str) -> T:
    """Build the dataclass ``cls`` from ``mapping``; ``where`` names the place for messages.

    Nested dataclasses, ``dict[str, X]``, ``list[X]``, ``tuple[X, ...]`` and ``X | None`` are followed.
    Raises ConfigError on an unknown key (did you mean), a missing key, or a value of another type.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: read {mapping!r}, expected a mapping with the fields of {cls.__name__}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls))}
    for key in mapping:
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {key!r}; {did_you_mean(str(key), fields)}")
    missing = [n for n, f in fields.items() if n not in mapping and _required(f)]
    if missing:
        raise ConfigError(f"{where}: missing {', '.join(missing)}; add it to this section")
    values = {k: _coerce(hints[k], v, f"{where}.{k}") for k, v in mapping.items()}
    try:
        return cls(**values)
    except ConfigError as error:  # what the class itself refuses, such as a size of zero
        raise ConfigError(f"{where}: {error}") from error


def require_positive(config: Any, *names: str) -> None:
    """Raise ConfigError for the first of the named fields that is not above zero; called from ``__post_init__``."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise ConfigError(f"{name}: read {value!r}, expected a number above 0")


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _coerce(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(args, value, where)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast(type[Any], hint), value, where=where)
    if origin is dict:
        return _coerce_dict(args[1], value, where)
    if origin in (list, tuple):
        return _coerce_sequence(origin, args[0], value, where)
    if origin is typing.Literal:
        return _coerce_literal(args, value, where)
    return _coerce_scalar(hint, value, where)


def _coerce_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    kinds = [a for a in args if a is not type(None)]
    errors = []
    for kind in kinds:
        try:
            return _coerce(kind, value, where)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _coerce_dict(kind: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: read {value!r}, expected a mapping")
    return {str(k): _coerce(kind, v, f"{where}.{k}") for k, v in value.items()}


def _coerce_sequence(origin: Any, kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: read {value!r}, expected a list")
    return origin(_coerce(kind, v, f"{where}[{i}]") for i, v in enumerate(value))


def _coerce_literal(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in allowed:
        raise ConfigError(f"{where}: read {value!r}; {did_you_mean(str(value), map(str, allowed))}")
    return value


def _coerce_scalar(hint: type[Any], value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where}: read {value!r} ({type(value).__name__}), expected {hint.__name__}")
    return value


def fingerprint(value: Any) -> str:
    """Return the sha256 of ``value`` in canonical JSON.

    Raises ConfigError for a value without one deterministic form (a set, an object, NaN).
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return ``value`` as JSON with sorted keys and no spaces; dataclasses count as mappings."""
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ConfigError(f"no fingerprint: {error} in {value!r}; use finite numbers") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"no fingerprint: {type(value).__name__} has no deterministic form; use plain values")


def value_differences(expected: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted path, expected, found) of every leaf of two JSON values that is not the same; None: not there."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in sorted({*expected, *found}):
            yield from value_differences(expected.get(key), found.get(key), f"{path}.{key}" if path else str(key))
    elif canonical_json(expected) != canonical_json(found):
        yield path, expected, found


def short(value: Any) -> str:
    """Return a value as JSON, cut to the length of a line's part."""
    text = canonical_json(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
