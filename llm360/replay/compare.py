"""How two checkpoints differ: file by file, tensor by tensor, number by number.

The distance of two floats in ulps is how many floats of their type lie between them, plus one: the last bit is 1 ulp.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.config import short, value_differences
from llm360.errors import IntegrityError
from llm360.files import MANIFEST, entries, read_json, sha256_file

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 22  # elements held at once: the largest tensors of a 7B model are a hundred times that
WORST = 5  # tensors named in a line of text


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """How a tensor of one file differs from the one of the same name in another.

    differing counts elements whose bits differ; max_abs is over those that are finite in both, not_finite the others.
    ulps counts the elements by their distance, in powers of two: "4-7" such far apart, "0" zeros of other sign; empty
    for types other than 16 and 32 bit floats, as max_ulps is 0. reason is set where elements cannot be compared:
    missing, another shape or type.
    """

    name: str
    elements: int
    differing: int
    max_abs: float
    not_finite: int
    max_ulps: int
    ulps: dict[str, int]
    reason: str | None = None

    def __str__(self) -> str:
        if self.reason is not None:
            return f"{self.name}: {self.reason}"
        lost = f", {self.not_finite} not finite" if self.not_finite else ""
        most = f"at most {self.max_abs:.3g} ({self.max_ulps} ulp)"
        return f"{self.name}: {self.differing} of {self.elements} elements, {most}{lost}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileDifference:
    """A file that is not the same in two folders; None is the sha256 of a file that is not there.

    tensors are those that differ, the worst first; values the leaves of JSON that differ, as ``path: a -> b``;
    reason says why a file could not be read.
    """

    path: str
    expected: str | None
    found: str | None
    tensors: tuple[TensorDifference, ...] = ()
    values: tuple[str, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        if self.expected is None or self.found is None:
            return f"{self.path}: {'not expected' if self.expected is None else 'missing'}"
        told = [*map(str, self.tensors[:WORST]), *self.values[:WORST], *([self.reason] if self.reason else [])]
        more = max(len(self.tensors) - WORST, 0) + max(len(self.values) - WORST, 0)
        return f"{self.path}: {'; '.join(told) or 'other bytes'}" + (f"; and {more} more" if more else "")


def compare(expected: Path, found: Path) -> tuple[FileDifference, ...]:
    """Return the files of two checkpoint folders that differ, manifests too, sorted by path; nothing when equal.

    The bytes on disk are compared, not what the manifests say of them. Memory: a block of one tensor at a time.
    """
    sides = [_hashes(folder) for folder in (expected, found)]
    unequal = [path for path in sorted({*sides[0], *sides[1]}) if sides[0].get(path) != sides[1].get(path)]
    return tuple(_file(expected, found, path, sides[0].get(path), sides[1].get(path)) for path in unequal)


def _hashes(folder: Path) -> dict[str, str]:
    manifest = {MANIFEST: sha256_file(folder / MANIFEST)} if (folder / MANIFEST).is_file() else {}
    return manifest | {e.path: e.sha256 for e in entries(folder)}


def _file(expected: Path, found: Path, path: str, a: str | None, b: str | None) -> FileDifference:
    plain = FileDifference(path=path, expected=a, found=b)
    if a is None or b is None:
        return plain
    try:
        if path.endswith(".safetensors"):
            return dataclasses.replace(plain, tensors=tuple(compare_tensors(expected / path, found / path)))
        if path.endswith(".json"):
            leaves = value_differences(read_json(expected / path), read_json(found / path))
            told = [f"{k}: {short(x)} -> {short(y)}" for k, x, y in leaves if (path, k) != (MANIFEST, "files")]
            reason = None if told else "it lists other files"  # each of which is a difference of its own
            return dataclasses.replace(plain, values=tuple(told), reason=reason)
    except (IntegrityError, ValueError) as error:
        return dataclasses.replace(plain, reason=str(error))
    return plain


def compare_tensors(expected: Path, found: Path) -> list[TensorDifference]:
    """Return the tensors of two safetensors files that differ, the worst first: most ulps, then largest distance.

    Raises IntegrityError naming a file that is not safetensors.
    """
    with _opened(expected) as a, _opened(found) as b:
        names = sorted({*a.keys(), *b.keys()})
        unequal = [d for name in names if (d := _tensor(name, a, b)) is not None]
    return sorted(unequal, key=lambda d: (d.reason is None, -d.not_finite, -d.max_ulps, -d.max_abs))


def _opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise IntegrityError(
            f"{path}: not a safetensors file ({error}); it is cut or altered: pull it again"
        ) from error


def _tensor(name: str, a: Any, b: Any) -> TensorDifference | None:
    if name not in a.keys() or name not in b.keys():  # noqa: SIM118  safe_open has no __contains__
        return _incomparable(name, "not expected" if name in b.keys() else "missing")  # noqa: SIM118
    x, y = a.get_tensor(name), b.get_tensor(name)
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return _incomparable(name, f"{list(y.shape)} {y.dtype}, expected {list(x.shape)} {x.dtype}")
    return compare_elements(name, x, y)


def _incomparable(name: str, reason: str) -> TensorDifference:
    return TensorDifference(
        name=name, elements=0, differing=0, max_abs=0.0, not_finite=0, max_ulps=0, ulps={}, reason=reason
    )


def compare_elements(name: str, expected: torch.Tensor, found: torch.Tensor) -> TensorDifference | None:
    """Return how two tensors of one shape and type differ, None when their bits are equal."""
    differing, not_finite, max_abs, max_ulps = 0, 0, 0.0, 0
    exponents: Counter[int] = Counter()
    for a, b in _unequal(expected.flatten(), found.flatten()):
        finite = a.isfinite() & b.isfinite()
        differing, not_finite = differing + len(a), not_finite + int((~finite).sum())
        if finite.any():
            a, b = a[finite], b[finite]  # noqa: PLW2901
            max_abs = max(max_abs, float((a.double() - b.double()).abs().max()))
            max_ulps = max(max_ulps, int((distances := _ulps(a, b)).max()))
            exponents += _histogram(distances)
    if not differing:
        return None
    return TensorDifference(
        name=name,
        elements=expected.numel(),
        differing=differing,
        max_abs=max_abs,
        not_finite=not_finite,
        max_ulps=max_ulps,
        ulps={_bucket(e): n for e, n in sorted(exponents.items())} if _integer(expected.dtype) else {},
    )


def _unequal(x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the elements of two flat tensors whose bits differ, a block of the tensors at a time."""
    for start in range(0, len(x), BLOCK):
        a, b = x[start : start + BLOCK], y[start : start + BLOCK]
        unequal = (_bits(a) != _bits(b)).any(-1)
        if unequal.any():
            yield a[unequal], b[unequal]


def _bits(x: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a flat tensor, [elements, bytes of one]."""
    import torch

    return x.contiguous().view(torch.uint8).view(len(x), x.element_size())


def _integer(dtype: torch.dtype) -> torch.dtype | None:
    """Return the integers of a float's size; None for types whose distances are not counted in ulps."""
    import torch

    return {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}.get(dtype)


def _ulps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the distances of finite floats in ulps, int64; zeros for other types."""
    integer = _integer(x.dtype)
    if integer is None:
        return x.new_zeros(len(x)).long()
    return (_ordered(x.view(integer)) - _ordered(y.view(integer))).abs()


def _histogram(distances: torch.Tensor) -> Counter[int]:
    """Count distances by the exponent of the power of two at or below them, -1 for 0."""
    import torch

    found, counts = torch.unique(torch.frexp(distances.double()).exponent - 1, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))


def _bucket(exponent: int) -> str:
    first, last = (1 << max(exponent, 0)) if exponent >= 0 else 0, (1 << (exponent + 1)) - 1
    return str(first) if first == last else f"{first}-{last}"


def _ordered(bits: torch.Tensor) -> torch.Tensor:
    """Return a float's bits as an int64 that grows with the float: neighbours differ by 1, both zeros are 0."""
    import torch

    sign = torch.iinfo(bits.dtype).min
    wide = bits.long()
    return torch.where(wide < 0, sign - wide, wide)
