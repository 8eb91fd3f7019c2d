from __future__ import annotations

from analyses.report.headline import headline
from llm360.files import write_json


def test_each_suite_has_its_main_numbers_and_no_detail(tmp_path):
    write_json(tmp_path / "training/summary.json", {"a-mini/loss/last": 2.0, "b-mini/loss/last": 3.0})
    write_json(tmp_path / "validation/summary.json", {"a-mini/last/all": 2.5, "a-mini/last/book": 9.0})
    scores = {"a-mini/ckpt_001/seen/score": 0.1, "a-mini/ckpt_003/seen/score": 0.2, "a-mini/ckpt_003/unseen/score": 0.9}
    write_json(tmp_path / "memorization/summary.json", scores | {"a-mini/correlation/score/undefined": 3})
    assert headline(tmp_path, ["a-mini", "b-mini", "c-mini"]) == {
        "a-mini": {"held_out/last": 2.5, "loss/last": 2.0, "memorized/score": 0.2},
        "b-mini": {"loss/last": 3.0},
    }
