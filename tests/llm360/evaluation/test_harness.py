from __future__ import annotations

import math
import statistics

import pytest

from llm360.errors import ConfigError, DataError, IntegrityError, TrainingError
from llm360.evaluation import tables, wheels
from llm360.evaluation.benchmarks import BenchmarkParams, build
from llm360.evaluation.harness import Benchmark, TaskParams, evaluate
from llm360.files import write_manifest

ARC25 = TaskParams(shots=25, limit=6)


def _benchmark(task, params, mirror):
    return Benchmark(task=task, params=params, seed=3, batch_size=4, benchmarks=mirror)


@pytest.fixture(scope="module")
def arc(mirror):
    return _benchmark("arc_challenge", ARC25, mirror)


@pytest.mark.parametrize(
    ("task", "shots", "metrics"),
    [("hellaswag", 10, ["acc", "acc_norm"]), ("truthfulqa_mc1", 0, ["acc"]), ("truthfulqa_mc2", 0, ["acc"])],
)
def test_scores_say_how_they_were_made(task, shots, metrics, mirror, make_model, tokenizer):
    params = TaskParams(shots=shots, limit=5)
    model = make_model(0)
    scores = evaluate(model, tokenizer, task=task, params=params, seed=3, batch_size=4, benchmarks=mirror)
    assert [s.metric for s in scores] == metrics
    for s in scores:
        assert (s.task, s.shots, s.limit, s.samples, s.requests, s.max_length) == (task, shots, 5, 5, 20, 96)
        assert (s.benchmark, s.seed, s.harness_version) == ("synthetic", 3, "lm_eval 0.4.13")
        assert 0 <= s.value <= 1
        assert s.stderr is not None
        assert math.isfinite(s.stderr)
        assert s.truncated == 20  # the prompt is longer than 96 tokens


def test_mmlu_has_its_subjects_and_both_means(mirror, make_model, tokenizer):
    scores = _benchmark("mmlu", TaskParams(shots=5, limit=1), mirror).run(make_model(0), tokenizer)
    subjects = [s for s in scores if s.task.startswith("mmlu_")]
    assert len(subjects) == 57
    assert all(s.stderr is None for s in subjects)  # of one question
    means = {s.metric: s for s in scores if s.task == "mmlu"}
    assert means["acc"].samples == 57
    assert means["acc_macro"].value == pytest.approx(statistics.fmean(s.value for s in subjects))
    assert means["acc"].value == pytest.approx(means["acc_macro"].value)  # subjects of equal size


def test_reuse_over_models_changes_nothing(arc, mirror, make_model, tokenizer):
    models = [make_model(seed) for seed in (0, 1, 2)]
    kept = [arc.run(model, tokenizer) for model in models]
    assert kept == [_benchmark("arc_challenge", ARC25, mirror).run(model, tokenizer) for model in models]
    assert len({tuple(s.value for s in scores) for scores in kept}) > 1  # or the test could not fail
    assert arc.run(models[0], tokenizer) == kept[0]


@pytest.mark.parametrize("window", [96, 4096])
def test_equal_to_plain_lm_eval(window, arc, mirror, make_model, tokenizer, tmp_path, monkeypatch):
    """The bundled task through ``simple_evaluate``, unchanged, with the mirror as the working directory."""
    import datasets
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    monkeypatch.chdir(mirror)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    folder = f"{next(iter(lm_eval.__path__))}/tasks/arc"
    manager = lm_eval.tasks.TaskManager(include_path=folder, include_defaults=False)
    lm = HFLM(pretrained=make_model(0, window=window), tokenizer=tokenizer, batch_size=4, device="cpu")
    plain = lm_eval.simple_evaluate(
        model=lm, tasks=["arc_challenge"], num_fewshot=25, limit=6, fewshot_random_seed=3, task_manager=manager
    )["results"]["arc_challenge"]
    ours = {s.metric: s for s in arc.run(make_model(0, window=window), tokenizer)}
    assert {m: (s.value, s.stderr) for m, s in ours.items()} == {
        m: (plain[f"{m},none"], plain[f"{m}_stderr,none"]) for m in ("acc", "acc_norm")
    }
    assert ours["acc"].truncated == (24 if window == 96 else 0)


def test_a_changed_mirror_is_read_again(make_model, tokenizer, tmp_path):
    """In the same folder and process: lm-eval with ``load_dataset`` would score the old rows."""
    folder, params = tmp_path / "m", TaskParams(shots=0, limit=None)
    build(folder, BenchmarkParams(source="local"))
    first = _benchmark("truthfulqa_mc1", params, folder).run(make_model(0), tokenizer)
    case = {"question": "New?", "choices": ["yes", "no"], "expected_index": 0}
    tables.write(folder, [_truth([case])])
    write_manifest(folder, {"benchmark": "changed"})
    second = _benchmark("truthfulqa_mc1", params, folder).run(make_model(0), tokenizer)
    assert [(s.benchmark, s.samples) for s in first + second] == [("synthetic", 12), ("changed", 1)]
    assert first[0].benchmark_sha256 != second[0].benchmark_sha256


def _truth(cases):
    rows = [wheels._truthfulqa(c) for c in cases]
    return tables.Table(dataset=tables.TRUTHFULQA, config="multiple_choice", split="validation", rows=rows)


def test_text_that_looks_like_a_special_token_stays_text(mirror, make_model, tokenizer):
    from llm360.evaluation.adapters import WindowLM

    before = tokenizer("</s>").input_ids
    lm = WindowLM(make_model(0), tokenizer, batch_size=1, store={})
    assert tokenizer.eos_token_id not in lm.tok_encode("a </s> b")
    assert tokenizer("</s>").input_ids == before


@pytest.mark.parametrize(
    ("task", "params", "error", "message"),
    [
        ("arc_chalenge", ARC25, ConfigError, "'arc_chalenge' is unknown; did you mean 'arc_challenge'"),
        ("arc_challenge", TaskParams(shots=-1, limit=1), ConfigError, r"expected shots >= 0 and limit >= 1"),
        ("arc_challenge", TaskParams(shots=0, limit=0), ConfigError, r"expected shots >= 0 and limit >= 1"),
        ("truthfulqa_mc1", TaskParams(shots=5, limit=1), ConfigError, "is a 0-shot task, read 5 shots"),
    ],
)
def test_settings_that_cannot_be(task, params, error, message, mirror):
    with pytest.raises(error, match=message):
        _benchmark(task, params, mirror)


def test_more_shots_than_examples(mirror, make_model, tokenizer):
    with pytest.raises(DataError, match=r"arc_challenge: lm-eval could not make the task.*lower the shots"):
        _benchmark("arc_challenge", TaskParams(shots=33, limit=1), mirror).run(make_model(0), tokenizer)


def test_mc2_without_its_column(tmp_path):
    tables.write(tmp_path, [_truth([{"question": "q", "choices": ["a", "b"], "expected_index": 0}])])
    write_manifest(tmp_path, {"benchmark": "packages"})
    with pytest.raises(DataError, match=r"truthfulqa_mc2 needs the column mc2_targets.*source to hub"):
        _benchmark("truthfulqa_mc2", TaskParams(shots=0, limit=1), tmp_path)


def test_a_damaged_mirror_is_named(tmp_path):
    build(tmp_path / "m", BenchmarkParams(source="local"))
    path = tmp_path / "m" / "allenai/ai2_arc/ARC-Challenge/test.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match=r"ARC-Challenge/test.parquet: sha256"):
        _benchmark("arc_challenge", ARC25, tmp_path / "m")


def test_weights_that_are_not_finite(arc, make_model, tokenizer):
    model = make_model(0)
    model.lm_head.weight.data[5] = math.nan
    with pytest.raises(TrainingError, match="24 of 24 log-likelihoods are not finite"):
        arc.run(model, tokenizer)


def test_an_answer_longer_than_the_window(arc, make_model, tokenizer):
    with pytest.raises(DataError, match="does not fit the model's window of 1"):
        arc.run(make_model(0, window=1), tokenizer)
