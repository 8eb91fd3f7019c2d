from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from analyses.common.run import load
from llm360.config import from_mapping
from llm360.data.corpus.declaration import declared
from llm360.data.mixture import ChunkParams, chunk_sizes
from llm360.data.planning.refusals import require_special
from llm360.data.tokens.tokenizer import TokenizerParams
from llm360.errors import ConfigError
from llm360.evaluation.benchmarks import BenchmarkParams
from llm360.model.build import build_model
from llm360.train.params import PhaseParams
from stages._stage import Runtime
from stages.compose import compose, main, render
from stages.init import ModelParams

ROOT = Path(__file__).resolve().parents[2]
SCALES = ["smoke", "mini", "study", "paper", "template", "template_branch"]
READ = {"tokenizers": TokenizerParams, "chunks": ChunkParams, "models": ModelParams, "pretrain": PhaseParams}


def test_params_yaml_is_the_mini_scale():
    assert yaml.safe_load((ROOT / "params.yaml").read_text()) == compose([])


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_is_read_without_an_unknown_key(scale):
    params = compose([f"scale={scale}"])
    for name, cls in READ.items():
        for key, value in params[name].items():
            from_mapping(cls, value, where=f"{scale}: {name}.{key}")


def test_the_template_has_every_section_that_dvc_needs_and_tokens_that_fit():
    params, whole = compose(["scale=template"]), compose(["scale=smoke"])
    assert set(params) == set(whole)
    assert set(params["evaluation"]) == set(whole["evaluation"])
    from_mapping(Runtime, params["runtime"], where="runtime")
    from_mapping(BenchmarkParams, params["evaluation"]["benchmarks"], where="benchmarks")
    for name, section in params["analyses"].items():
        from_mapping(load(name).Params, section, where=name)
    corpora = {kind: declared(kind, section, where=kind) for kind, section in params["sources"].items()}
    assert set(corpora) == set(params["tokenizers"]["mine"]["kinds"]) == set(params["chunks"]["mine"]["mixture"])
    tokenizer = from_mapping(TokenizerParams, params["tokenizers"]["mine"], where="mine")
    ids = tokenizer.vocab_size + len(tokenizer.extra_tokens) + tokenizer.reserved
    assert params["models"]["mine"]["config"]["vocab_size"] == ids
    require_special(from_mapping(ChunkParams, params["chunks"]["mine"], where="mine"), tokenizer.extra_tokens)


@pytest.mark.parametrize("scale", SCALES)
def test_every_tokenizer_is_trained_on_kinds_that_there_are(scale):
    params = compose([f"scale={scale}"])
    for tokenizer in params["tokenizers"].values():
        assert set(tokenizer["kinds"]) <= set(params["sources"])


@pytest.mark.parametrize("scale", SCALES)
def test_phases_follow_each_other_and_steps_fit_the_schedule(scale):
    params = compose([f"scale={scale}"])
    for key, phase in params["pretrain"].items():
        chunks = from_mapping(ChunkParams, params["chunks"][key], where=key)
        steps = (chunks.chunks - 1) * (chunks.rows_per_chunk // phase["batch_size"])
        last = chunks.last_chunk_rows or chunks.rows_per_chunk
        steps += last // phase["batch_size"]
        stops_early = key.endswith("phase1")  # its line was laid out for phase 2 as well
        line = phase["schedule"]["total_steps"] - phase["schedule"]["begin"]
        assert steps < line if stops_early else steps == line
        assert phase["start"].startswith(("init/", "checkpoints/"))


@pytest.mark.parametrize("scale", SCALES)
def test_dvcs_own_composition_of_a_scale_that_branches_nowhere_is_the_same(scale, tmp_path):
    """`dvc exp run -S` composes conf/ with Hydra alone, so a section that begins anew says `branch: null` itself."""
    from dvc.utils.hydra import compose_and_dump

    params = compose([f"scale={scale}"])
    compose_and_dump(
        str(tmp_path / "params.yaml"), str(ROOT / "conf"), None, "config", str(tmp_path), [f"scale={scale}"]
    )
    raw = yaml.safe_load((tmp_path / "params.yaml").read_text())
    branches = {key for key, section in params["pretrain"].items() if section["branch"]}
    for key in branches:
        assert raw["pretrain"][key]["branch_from"]
    for each in (raw, params):
        each["pretrain"] = {key: section for key, section in each["pretrain"].items() if key not in branches}
    assert raw == params


def test_the_paper_scale_holds_the_papers_numbers():
    """Facts: 6,738,415,616 and 6,575,278,720 parameters; 274,320, 79,721, 214,387 and 27,728 steps."""
    import torch

    params = compose(["scale=paper"])
    with torch.device("meta"):
        sizes = {k: build_model(m["family"], m["config"], seed=0).num_parameters() for k, m in params["models"].items()}
    assert sizes == {"amber": 6_738_415_616, "crystal": 6_575_278_720}
    phases = {k: from_mapping(ChunkParams, v, where=k) for k, v in params["chunks"].items()}
    rows = {k: sum(chunk_sizes(phase, phase.rows_per_chunk)) for k, phase in phases.items()}
    steps = {k: rows[k] // p["batch_size"] for k, p in params["pretrain"].items()}
    assert steps["crystal-phase1"] == 79_721
    assert steps["crystal-phase2"] == 214_387
    assert steps["crystal-phase3"] == 27_728
    assert rows["amber"] * 2049 == 1_259_133_776_640  # Table 2's 1259.13 B counts the 2049th token
    assert params["pretrain"]["amber"]["schedule"]["total_steps"] == 274_320


def test_mini_has_the_papers_shape():
    params = compose([])
    assert params["chunks"]["amber-mini"]["chunks"] == 360
    assert [params["chunks"][f"crystal-mini-phase{p}"]["chunks"] for p in (1, 2, 3)] == [36, 96, 11]


def test_an_unknown_scale_is_refused_and_params_stay(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("old")
    assert main(["scale=minni"]) == 1
    assert "minni" in capsys.readouterr().err
    assert Path("params.yaml").read_text() == "old"
    with pytest.raises(ConfigError, match=r"see conf/config\.yaml"):
        render(["scale=minni"])
