from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.config import canonical_json, fingerprint, from_mapping
from llm360.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    steps: int
    kind: Literal["cosine", "linear"]
    inner: Inner
    many: dict[str, Inner]
    words: list[str]
    limit: int | None = None


GOOD = {"steps": 3, "kind": "linear", "inner": {"rate": 1}, "many": {"a": {"rate": 0.5}}, "words": ["x"]}


def test_nested_values_are_built():
    built = from_mapping(Outer, GOOD, where="params")
    assert built == Outer(
        steps=3, kind="linear", inner=Inner(rate=1.0), many={"a": Inner(rate=0.5)}, words=["x"], limit=None
    )
    assert isinstance(built.inner.rate, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 3}, r"params: unknown key 'step'; did you mean 'steps'"),
        ({"steps": "3"}, r"params\.steps: read '3' \(str\), expected int"),
        ({"steps": True}, r"params\.steps: read True \(bool\), expected int"),
        ({"kind": "cosin"}, r"params\.kind: read 'cosin'; did you mean 'cosine'"),
        ({"inner": {"rat": 1}}, r"params\.inner: unknown key 'rat'; did you mean 'rate'"),
        ({"inner": 3}, r"params\.inner: read 3, expected a mapping"),
        ({"many": {"a": {"rate": "x"}}}, r"params\.many\.a\.rate: read 'x'"),
        ({"words": "x"}, r"params\.words: read 'x', expected a list"),
        ({"limit": "x"}, r"params\.limit: read 'x'"),
    ],
)
def test_a_wrong_value_names_its_place_and_the_cure(change, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping(Outer, GOOD | change, where="params")


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match="missing steps"):
        from_mapping(Outer, {k: v for k, v in GOOD.items() if k != "steps"}, where="params")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(value):
    assert fingerprint(value) == fingerprint(dict(reversed(value.items())))


@given(values, values)
def test_equal_fingerprints_mean_equal_values(a, b):
    assert (fingerprint(a) == fingerprint(b)) == (canonical_json(a) == canonical_json(b))


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), float("inf"), b"x"])
def test_a_value_without_one_form_has_no_fingerprint(value):
    with pytest.raises(ConfigError, match="no fingerprint"):
        fingerprint({"x": value})
