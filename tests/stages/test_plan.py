from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from llm360.config import from_mapping
from llm360.data.mixture import ChunkParams
from llm360.data.planning.plan import plan_phase, require_possible
from llm360.data.planning.supply import declared
from llm360.errors import DataError
from stages import packages, sources
from stages.compose import compose
from stages.plan import main

ROOT = Path(__file__).resolve().parents[2]
AMBER = {  # tokens in billions, Table 2
    "arxiv": 30.00,
    "book": 28.86,
    "c4": 197.67,
    "refinedweb": 665.01,
    "starcoderdata": 291.92,
    "stackexchange": 21.75,
    "wikipedia": 23.90,
}
SLIMPAJAMA = 690e9  # in CrystalCoder's tokens; phase 1 read half of it with these weights
STARCODER = 291.92e9
VOCAB = {"amber": 32_000, "crystal": 32_032}
CORPUS = {
    "licence": "CC0-1.0", "text": None, "id": None, "where": {}, "max_bad": 0.1, "max_document_mb": 1.0,
    "limit_mb": None, "files": {"format": "text", "root": ".", "patterns": ["*.txt"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def paper():
    return compose(["scale=paper"])


def planned(paper, key, tokens, mixture=None, **changes):
    chunks = paper["chunks"][key] | changes | ({"mixture": mixture} if mixture else {})
    params = from_mapping(ChunkParams, chunks, where=key)
    supplies = {k: declared(tokens.get(k), i.part) for k, i in params.mixture.items()}
    return plan_phase(params, supplies, batch_size=paper["pretrain"][key]["batch_size"], vocab_size=32_032)


def mixture_file(name):
    return yaml.safe_load((ROOT / f"conf/mixture/{name}.yaml").read_text())


def billions(table):
    return {k: v * 1e9 for k, v in table.items()}


def test_amber_is_the_published_one(paper):
    """Paper and amber-train: 1,706,976 rows x 360 x 2,049 tokens, 762 steps a chunk of 2,240, 96 rows left over."""
    phase = planned(paper, "amber", billions(AMBER))
    assert set(phase.chunk_rows) == {1_706_976}
    assert len(phase.chunk_rows) == 360
    assert phase.tokens == 1_259_133_776_640
    assert set(phase.steps) == {762}
    assert set(phase.rows_left) == {96}
    assert sum(phase.steps) == 274_320
    assert phase.targets == 1_258_448_486_400


def test_amber_is_possible_with_table_2_within_its_rounding(paper):
    phase = planned(paper, "amber", billions(AMBER))
    require_possible(phase)
    for kind in phase.kinds:
        assert round(kind.tokens / 1e9, 2) == AMBER[kind.kind]
        assert kind.epochs_needed == pytest.approx(1, abs=2e-4)


def test_table_2_as_printed_asks_for_more_than_it_says_there_is(paper):
    """Its rows sum to 1259.11 billion, and the chunks hold 1259.1338: by its shares two kinds would be short."""
    phase = planned(paper, "amber", billions(AMBER), mixture_file("amber"))
    assert [k.kind for k in phase.kinds if k.short] == ["refinedweb", "starcoderdata"]
    with pytest.raises(DataError, match=r"refinedweb must give 324,559,569 rows .* which is 12,556,881 too few"):
        require_possible(phase)


def test_amber_as_all_there_is_makes_the_published_chunks_within_the_rounding(paper):
    every = {"mixture": mixture_file("amber_all"), "rows_per_chunk": None}
    low, high = (
        planned(paper, "amber", billions({k: v + by for k, v in AMBER.items()}), **every) for by in (-0.005, 0.005)
    )
    assert low.chunk_rows[0] <= 1_706_976 <= high.chunk_rows[0]
    assert high.chunk_rows[0] - low.chunk_rows[0] < 100
    assert len(set(low.chunk_rows)) == 1


@pytest.mark.parametrize(
    ("phase", "steps", "billion", "chunks"),
    [("phase1", 79_721, 344.82, 54), ("phase2", 214_387, 927.30, 143), ("phase3", 27_728, 119.93, 28)],
)
def test_crystal_is_the_published_one(paper, phase, steps, billion, chunks):
    """crystalcoder-train: steps of 2,112 x 2,048 tokens."""
    plan = planned(paper, f"crystal-{phase}", {})
    assert sum(plan.steps) == steps
    assert plan.targets == steps * 2112 * 2048
    assert round(plan.targets / 1e9, 2) == billion
    assert (len(plan.chunk_rows), set(plan.rows_left)) == (chunks, {0})


def crystal_tokens(paper):
    weights = paper["chunks"]["crystal-phase1"]["mixture"]
    return {k: SLIMPAJAMA * w["weight"] for k, w in weights.items()} | {"starcoder": STARCODER}


@pytest.mark.parametrize("phase", ["phase1", "phase2", "phase3"])
def test_crystal_is_possible_with_the_published_sizes(paper, phase):
    plan = planned(paper, f"crystal-{phase}", crystal_tokens(paper))
    require_possible(plan)
    needed = {k.kind: k.epochs_needed for k in plan.kinds if k.epochs_needed is not None}
    if phase == "phase1":
        assert all(n == pytest.approx(1, abs=0.001) for n in needed.values())
    if phase == "phase2":
        assert needed["starcoder"] == pytest.approx(2, abs=0.005)
    if phase == "phase3":
        assert "slimpajama-github" not in needed
        assert 2.9 < needed.pop("slimpajama-wikipedia") < 3
        assert max(needed.values()) < 1


def test_crystals_parts_and_fill_in_the_middle_are_the_published_ones(paper):
    one, two, three = (
        from_mapping(ChunkParams, paper["chunks"][f"crystal-phase{i}"], where="paper").mixture for i in (1, 2, 3)
    )
    assert {i.part for i in one.values()} == {"even_files"}
    assert {i.part for k, i in two.items() if k != "starcoder"} == {"odd_files"}
    assert all(i.fim is None for i in one.values())
    assert {k: (i.epochs, i.fim.rate, i.fim.spm_rate) for k, i in two.items() if i.fim} == {"starcoder": (2, 0.9, 0.5)}
    code = {f"starcoder-{k}": (3, 0.3, 0.5) for k in ("python", "html", "javascript", "css")}
    assert {k: (i.epochs, i.fim.rate, i.fim.spm_rate) for k, i in three.items() if i.fim and k in code} == code
    assert {i.part for k, i in three.items() if k not in code} == {"first_tenth"}
    assert set(paper["tokenizers"]["crystal"]["extra_tokens"]) >= set(two["starcoder"].fim.tokens)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with nothing built and the smoke scale's params.yaml."""
    monkeypatch.chdir(tmp_path)
    params = compose(["scale=smoke"])
    Path("params.yaml").write_text(yaml.safe_dump(params))
    return params


def change(params, **tokens):
    for kind, count in tokens.items():
        params["sources"][kind]["tokens"] = count
    Path("params.yaml").write_text(yaml.safe_dump(params))


@pytest.mark.parametrize("scale", ["smoke", "mini", "study", "paper", "template"])
def test_every_scale_can_be_planned_before_anything_is_built(tmp_path, monkeypatch, capsys, scale):
    monkeypatch.chdir(tmp_path)
    params = compose([f"scale={scale}"])
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"{key}\n  chunks  " in out for key in params["chunks"])
    assert "disk for all: " in out


def test_the_table_is_plain_columns_when_it_is_not_on_a_terminal(here, capsys):
    change(here, arxiv=10_000_000)
    assert main(["--phase", "amber-smoke"]) == 0
    out = capsys.readouterr().out
    assert "steps   6 a chunk at batch 8, 0 rows left over; 36 steps train on 36,864 tokens" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "unknown" in lines["book"]
    assert "0.01 billion declared" in lines["arxiv"]
    assert lines["kind"].index("how it") == lines["arxiv"].index("0.01 billion")


def test_nothing_built_is_not_zero_bytes(here, capsys):
    assert main([]) == 0
    assert "disk for all: documents not known (not built), " in capsys.readouterr().out


def test_the_last_chunk_is_told_apart(here, capsys):
    here["chunks"]["amber-smoke"]["last_chunk_rows"] = 43
    change(here)
    assert main(["--phase", "amber-smoke"]) == 0
    assert "0 rows left over (the last chunk: 5 steps, 3 rows left over); 35 steps" in capsys.readouterr().out


def test_a_kind_that_is_read_too_often_but_within_the_error_is_marked(here, capsys):
    here["chunks"]["amber-smoke"]["rows_per_chunk"] = 480
    change(here, wikipedia=7_000)
    assert main(["--phase", "amber-smoke", "--json"]) == 0
    kinds = {k["kind"]: k for k in json.loads(capsys.readouterr().out)["phases"]["amber-smoke"]["kinds"]}
    assert {k for k, plan in kinds.items() if plan["over"]} == {"wikipedia"}
    assert main(["--phase", "amber-smoke"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "over what is allowed" in line]
    assert line.startswith("wikipedia")
    assert line.endswith("; over what is allowed; within the estimate's error of 5,000,000 tokens")


def test_documents_that_were_built_with_other_parameters_are_told(here, capsys, monkeypatch):
    here["sources"] |= {"book": {"names": ["python-topics"], "limit_mb": 0.1, "part_kb": 16}, "own": CORPUS}
    mixture = {k: {"weight": 1, "part": "all", "epochs": 1} for k in ("book", "own")}
    here["chunks"] = {"amber-smoke": here["chunks"]["amber-smoke"] | {"mixture": mixture}}
    change(here)
    Path("own.txt").write_text("words " * 100)
    packages.main([])
    for kind in mixture:
        sources.main(["--kind", kind])
    assert main([]) == 0
    assert "other parameters" not in capsys.readouterr().out
    here["sources"]["book"]["limit_mb"] = 0.2
    here["sources"]["own"] |= {"licence": "MIT", "tokens": 5}
    change(here)
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"; built with other parameters; run dvc repro sources@{kind}\n" in said for kind in mixture)
    here["sources"]["book"]["limit_mb"] = 0.1
    here["sources"]["own"] |= {"licence": "CC0-1.0", "max_bad": 0.5}  # which are not in the documents
    change(here)
    assert main([]) == 0
    assert "other parameters" not in capsys.readouterr().out


def test_json_holds_what_the_table_says(here, capsys):
    assert main(["--phase", "crystal-smoke-phase2", "--json"]) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["crystal-smoke-phase2"]
    assert (phase["rows"], phase["tokens"], phase["steps"]) == (144, 144 * 129, [6, 6, 6])
    assert sum(k["rows"] for k in phase["kinds"]) == 144
    assert phase["kinds"][0]["supply"]["basis"] == "unknown"


def test_an_impossible_mixture_is_shown_and_then_refused(here, capsys):
    change(here, refinedweb=1)
    here["chunks"]["amber-smoke"]["rows_per_chunk"] = 480_000
    change(here)
    with pytest.raises(SystemExit, match="1"):
        main(["--phase", "amber-smoke"])
    captured = capsys.readouterr()
    assert "TOO FEW" in captured.out
    assert "error: DataError: amber-smoke: refinedweb must give" in captured.err


def test_a_special_token_that_no_tokenizer_will_have_is_refused(here, capsys):
    here["tokenizers"]["crystal-smoke"]["extra_tokens"].remove("<|fim_prefix|>")
    change(here)
    with pytest.raises(SystemExit, match="1"):
        main([])
    assert "names '<|fim_prefix|>', which tokenizer crystal-smoke lacks; did you mean" in capsys.readouterr().err


def test_a_kind_that_no_source_gives_is_refused(here, capsys):
    del here["sources"]["wikipedia"]
    change(here)
    with pytest.raises(SystemExit, match="1"):
        main(["--phase", "amber-smoke"])
    assert "amber-smoke mixes 'wikipedia', which sources lacks" in capsys.readouterr().err


def test_an_unknown_phase_is_refused(here, capsys):
    with pytest.raises(SystemExit, match="1"):
        main(["--phase", "amber-smok"])
    assert "no phase 'amber-smok'; did you mean 'amber-smoke'" in capsys.readouterr().err
