from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import registry
from llm360.errors import InvalidId, NotFound, NotReleased
from registry import ArtifactId, Kind

CRYSTAL_STEPS = 79_721 + 214_387 + 27_728


def _id(suite, kind, index):
    return ArtifactId(suite=suite, kind=Kind(kind), index=index)


@pytest.mark.parametrize(
    ("suite", "ckpt", "branch"),
    [
        ("amber", 0, "ckpt_000"),
        ("amber", 35, "ckpt_035"),
        ("amber", 358, "ckpt_358"),
        ("amber", 359, "main"),
        ("crystal", 55_500, "CrystalCoder_phase1_checkpoint_055500"),
        ("crystal", 79_721 + 18_000, "CrystalCoder_phase2_checkpoint_018000"),
        ("crystal", 79_721 + 214_387, "CrystalCoder_phase2_checkpoint_214387"),
        ("crystal", CRYSTAL_STEPS, "main"),
        ("amber-mini", 359, "ckpt_359"),
    ],
)
def test_revisions_are_the_real_branches(suite, ckpt, branch):
    assert registry.suite(suite).revision(ckpt) == branch
    assert registry.suite(suite).ckpt(branch) == ckpt


@given(st.sampled_from(["amber", "crystal", "amber-mini", "crystal-mini"]), st.data())
def test_every_index_has_its_own_branch_and_phase(name, data):
    suite = registry.suite(name)
    ckpt = data.draw(st.integers(suite.phases[0].first, suite.last))
    assert suite.ckpt(suite.revision(ckpt)) == ckpt
    assert ckpt in suite.phase_of(ckpt)
    assert sum(ckpt in phase for phase in suite.phases) == 1


@pytest.mark.parametrize("word", ["ckpt_35", "ckpt_0355", "ckpt_359", "last", "", "355", 1.5, True, None])
def test_a_name_that_is_no_branch_is_refused(word):
    with pytest.raises(InvalidId, match=r"expected an index \(0 to 359\), 'final' or a branch name"):
        registry.suite("amber").ckpt(word)


def test_crystal_refuses_a_step_outside_its_phase():
    with pytest.raises(InvalidId, match="branch name"):
        registry.suite("crystal").ckpt("CrystalCoder_phase3_checkpoint_030000")


def test_a_released_suite_keeps_the_published_rule_with_its_caveat():
    for ckpt in (0, 35, 359):
        assert registry.suite("amber").chunks_seen(ckpt) == list(range(ckpt + 1))
    assert any("Which four was not published" in note for note in registry.suite("amber").notes)


def test_chunks_seen_is_not_invented_for_crystal():
    with pytest.raises(NotReleased, match="not in numbered chunks"):
        registry.suite("crystal").chunks_seen(1_500)


def test_folder_names_the_phase_only_where_there_are_several():
    assert registry.suite("amber-mini").folder(7) == "amber-mini"
    assert registry.suite("crystal-mini").folder(36) == "crystal-mini/phase2"


def test_totals_are_the_published_ones():
    amber, crystal = registry.suite("amber"), registry.suite("crystal")
    assert amber.steps_at(0) == 762
    assert amber.steps_at(359) == 274_320
    assert amber.tokens_at(359) == 1_258_448_486_400
    assert crystal.steps_at(55_500) == 55_500
    assert crystal.tokens_at(CRYSTAL_STEPS) == CRYSTAL_STEPS * 2112 * 2048


def test_not_found_names_the_nearest_ids():
    with pytest.raises(NotFound, match=r"amber-mini/ckpt-400: not in this suite; nearest: amber-mini/ckpt-359, .*-358"):
        registry.suite("amber-mini").require(_id("amber-mini", "ckpt", 400))


def test_a_known_gap_is_not_released_with_reason_and_source():
    with pytest.raises(NotReleased, match=r"optimizer states were not released.*source: LLM360 paper, section 4\.1\.5"):
        registry.suite("amber").require(_id("amber", "optimizer", 3))


def test_a_kind_without_addresses_says_which_have():
    with pytest.raises(NotFound, match="eval has no address yet; addressable: ckpt, chunk, optimizer, log"):
        registry.suite("amber-mini").require(_id("amber-mini", "eval", 3))
