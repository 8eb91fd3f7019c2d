from __future__ import annotations

import pytest

from llm360.errors import DataError
from llm360.evaluation.tables import MMLU, Table, read, write


def _table(answers):
    rows = [{"question": f"q{i}", "subject": "anatomy", "choices": list("wxyz"), "answer": a} for i, a in answers]
    return Table(dataset=MMLU, config="anatomy", split="test", rows=rows)


def test_reads_back_what_was_written(tmp_path):
    table = _table(enumerate([0, 3, 1]))
    assert write(tmp_path, [table]) == {"cais/mmlu/anatomy/test.parquet": 3}
    assert read(tmp_path, MMLU, "anatomy")["test"].to_list() == table.rows


def test_changed_files_are_read_again(tmp_path):
    """What ``datasets.load_dataset`` gets wrong: it caches under the folder's base name."""
    for folder, answers in ((tmp_path / "a" / "m", [0, 1]), (tmp_path / "b" / "m", [2]), (tmp_path / "a" / "m", [3])):
        write(folder, [_table(enumerate(answers))])
        assert read(folder, MMLU, "anatomy")["test"]["answer"] == answers


def test_plain_datasets_reads_the_mirror(mirror, tmp_path):
    import datasets

    loaded = datasets.load_dataset(str(mirror / MMLU), "virology", cache_dir=str(tmp_path))
    ours = read(mirror, MMLU, "virology")
    assert {s: d.to_list() for s, d in loaded.items()} == {s: d.to_list() for s, d in ours.items()}


def test_unknown_configuration_names_the_nearest(mirror):
    with pytest.raises(DataError, match=r"expected the benchmark cais/mmlu there.*did you mean 'cais/mmlu/virology'"):
        read(mirror, MMLU, "virolgy")
