from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import InvalidId
from registry import ArtifactId, Kind
from registry.ids import SUITE_NAME, WHOLE

IDS = st.builds(
    lambda suite, kind, index: ArtifactId(suite=suite, kind=kind, index=None if kind in WHOLE else index),
    st.from_regex(SUITE_NAME, fullmatch=True),
    st.sampled_from(Kind),
    st.integers(min_value=0, max_value=10**9),
)


@given(IDS)
def test_text_form_round_trips(artifact):
    assert ArtifactId.parse(str(artifact)) == artifact


@given(st.text(max_size=20) | st.from_regex(r"[a-z-]{0,6}/(ckpt|chunk|code)-?[-0-9 .]{0,4}", fullmatch=True))
def test_what_parses_is_the_one_text_of_its_id(text):
    try:
        artifact = ArtifactId.parse(text)
    except InvalidId:
        return
    assert str(artifact) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "amber", "amber/", "/ckpt-1", "amber/ckpt", "amber/ckpt-", "amber/ckpt-01", "amber/ckpt--1"),
        *("amber/ckpt-1.0", "amber/ckpt-٣", "Amber/ckpt-1", "amber/ckpt-1 ", "amber//ckpt-1", "amber/code-1"),
        *("amber/ckpt_1", "../x/ckpt-1"),
    ],
)
def test_refuses_and_shows_form_and_example(text):
    with pytest.raises(InvalidId, match=r"expected SUITE/KIND-INDEX, for example amber/ckpt-355"):
        ArtifactId.parse(text)


def test_a_misspelt_kind_gets_a_hint():
    with pytest.raises(InvalidId, match=r"did you mean 'ckpt'"):
        ArtifactId.parse("amber/ckp-3")


@pytest.mark.parametrize("index", [-1, True, 1.0, "1"])
def test_an_index_is_a_whole_number(index):
    with pytest.raises(InvalidId, match="whole number from 0 on"):
        ArtifactId(suite="amber", kind=Kind.CKPT, index=index)
