from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser

import markupsafe
import pytest

from analyses import data, memorization, training, trajectories, validation
from analyses.common.run import names, run
from analyses.report.gather import gather, parameters
from analyses.report.page import counted, render
from analyses.trajectories import Headline
from llm360.data.checks.contamination import ContaminationParams
from llm360.data.checks.duplicates import DuplicateParams
from llm360.errors import IntegrityError
from llm360.files import write_json

VOID = {"meta", "br", "path", "use", "rect"}


class Tags(HTMLParser):
    """Collects ids and addresses, and checks that every tag is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.addresses += [v for k, v in attrs if k in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def gathered(workspace):
    return gather(workspace, planned=names())


@pytest.fixture
def analysed(workspace):
    checkpoints = {"amber-toy": [0, 2], "crystal-toy": [0, 2]}
    arc = {"arc_challenge": Headline(title="ARC-Challenge", metric="acc_norm", chance=0.25)}
    sections = {
        memorization: memorization.Params(
            k=8, l=8, rows_per_chunk=2, chunk_every=1, seed=7, batch_size=8, checkpoints={"amber-toy": [0, 2]}
        ),
        validation: validation.Params(batch_size=8, checkpoints=checkpoints),
        training: training.Params(suites=list(checkpoints)),
        trajectories: trajectories.Params(suites=list(checkpoints), tasks=arc),
        data: data.Params(
            suites=list(checkpoints),
            tasks=["arc_challenge", "hellaswag"],
            contamination=ContaminationParams(ngram=8, threshold=0.3, rows_listed=3),
            duplicates=DuplicateParams(shingle=5, bands=4, band_rows=4, similarity=0.8, seed=1),
        ),
    }
    for module, params in sections.items():
        name = module.__name__.split(".")[1]
        run(module, params, workspace.artifacts / "analyses" / name, name=name, recipe={})
    return workspace


def test_the_page_stands_alone(analysed):
    page = render(gathered(analysed))
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.tags
    assert len(tags.ids) == len(set(tags.ids))
    assert {a[1:] for a in tags.addresses} <= set(tags.ids)
    assert all(a.startswith("#") for a in tags.addresses)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(tags.ids)
    assert str(analysed.root) not in page


def test_the_page_shows_all_that_was_built(analysed):
    page = render(gathered(analysed))
    assert "Not built" not in page
    for text in ("amber-toy", "crystal-toy", "ARC-Challenge", "0.270", "PSF-2.0", "1.25", "amber-safe-toy", "0.1250"):
        assert text in page
    assert page.count("<svg") == sum(1 for _ in (analysed.artifacts / "analyses").rglob("*.svg")) == 13


def test_the_data_section_shows_tokens_duplicates_items_and_the_chi_square(analysed):
    tables = {t.heads[-1]: t for s in gathered(analysed).sections for t in s.tables}
    assert {"mixture", "p", "share", "near", "largest share"} == set(tables)
    assert [row[:3] for row in tables["p"].rows] == [["amber-toy", "pretrain", "3"], ["crystal-toy", "phase1", "2"]]
    assert ["amber-toy", "arc_challenge", "12", "0", "12"] in [row[:5] for row in tables["largest share"].rows]
    page = render(gathered(analysed))
    assert all(str(markupsafe.escape(table.caption)) in page for table in tables.values())


@pytest.mark.parametrize("text", [b"", b"suite,phase\na,b\n"])
def test_a_table_of_the_data_checks_that_cannot_be_read_is_named(analysed, text):
    (analysed.artifacts / "analyses" / "data" / "chi_square.csv").write_bytes(text)
    with pytest.raises(IntegrityError, match=r"chi_square\.csv: no table of the data checks .*rebuild it"):
        gathered(analysed)


def test_finetuned_suites_come_last_and_are_not_counted_twice(workspace):
    index = workspace.read_index("amber-toy")
    index |= {"suite": "amber-again-toy", "base": "amber-toy/ckpt-1", "checkpoints": index["checkpoints"][-1:]}
    write_json(workspace.artifacts / "index" / "amber-again-toy.json", index)
    report = gathered(workspace)
    assert [s.name for s in report.suites] == ["amber-toy", "crystal-toy", "amber-again-toy"]
    assert ("made from", "amber-toy/ckpt-1") in report.suites[-1].facts
    assert "amber-toy and crystal-toy: 6 checkpoints over 3.07 k tokens, from 12 documents collected" in " ".join(
        render(report).split()
    )


def test_the_scores_are_those_of_the_last_evaluated_checkpoint_which_is_named(analysed):
    report = gathered(analysed)
    assert [name for name, _ in report.scores] == ["amber-toy, ckpt 2", "crystal-toy, ckpt 2"]
    assert [row["value"] for _, (row,) in report.scores] == [0.27, 0.27]


def test_a_reward_has_no_before_and_the_log_probability_has(workspace):
    (found,) = gathered(workspace).finetuned
    values = {label: pair for label, *pair in found.measured}
    assert values["DPO: reward margin, chosen over rejected"] == [None, 0.125]
    assert values["DPO: log probability of a chosen answer, nats"] == [-84.5, -138.75]
    assert '<td class="n">\u2013</td><td class="n">0.1250</td>' in render(gathered(workspace))


@pytest.mark.parametrize("text", [b"", b"\x00\xff garbage", b"suite,task\na,b\n", b"ckpt,value\n1,many\n"])
def test_scores_that_cannot_be_read_are_named(workspace, text):
    path = workspace.artifacts / "analyses" / "trajectories" / "trajectories.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with pytest.raises(IntegrityError, match=r"trajectories\.csv: no table of scores .*rebuild it"):
        gathered(workspace)


@pytest.mark.parametrize(("number", "text"), [(0, "0 chunks"), (1, "1 chunk"), (2, "2 chunks")])
def test_a_noun_agrees_with_its_number(number, text):
    assert counted(number, "chunk") == text


def test_equal_artifacts_give_equal_bytes(analysed):
    assert render(gathered(analysed)) == render(gathered(analysed))


def test_what_is_missing_is_said(workspace):
    page = render(gathered(workspace))
    for name in names():
        assert f"dvc repro analyze@{name}" in page


def test_what_params_do_not_ask_for_is_not_promised(workspace):
    page = render(gather(workspace, planned=["training"]))
    assert "dvc repro analyze@training" in page
    assert "dvc repro analyze@validation" not in page
    assert "Not built: <code>params.yaml</code> has no section <code>analyses.validation</code>." in page


def test_an_empty_workspace_has_a_page_too(workspace):
    shutil.rmtree(workspace.artifacts)
    page = render(gathered(workspace))
    assert "No suite has been built here yet" in page
    assert "dvc repro sft dpo" in page


def test_text_from_artifacts_is_escaped(analysed):
    path = analysed.artifacts / "sources" / "arxiv" / "manifest.json"
    path.write_text(path.read_text().replace("PSF-2.0", "<script>alert(1)</script>"))
    assert "<script>" not in render(gathered(analysed))


def test_parameters_are_counted_from_the_header(workspace):
    import registry

    checkpoint = registry.checkpoint("crystal-toy", ckpt=0)
    assert parameters(checkpoint.path / "model.safetensors") == sum(p.numel() for p in checkpoint.model().parameters())


def test_weights_that_are_cut_are_named(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(IntegrityError, match=r"model\.safetensors: no safetensors header"):
        parameters(tmp_path / "model.safetensors")
