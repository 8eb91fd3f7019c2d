"""Benchmark tables: the Hub's folders, splits and columns that lm-eval's bundled tasks read.

A mirror is a folder laid out as the Hub's datasets are, so plain ``datasets.load_dataset`` reads it too:

    allenai/ai2_arc/README.md                        front matter that names the data files
    allenai/ai2_arc/ARC-Challenge/train.parquet      one file per configuration and split
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import DataError, did_you_mean
from llm360.files import write_bytes

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

ARC, HELLASWAG, MMLU, TRUTHFULQA = "allenai/ai2_arc", "Rowan/hellaswag", "cais/mmlu", "truthfulqa/truthful_qa"
LICENCES = {ARC: "CC-BY-SA-4.0", HELLASWAG: "MIT", MMLU: "MIT", TRUTHFULQA: "Apache-2.0"}  # the Hub's cards
DEFAULT = "default"  # what `datasets` calls the one configuration of a dataset without names
SPLITS = ("train", "dev", "validation", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """One split of one configuration of a Hub dataset; rows have the columns of ``schema(dataset)``."""

    dataset: str
    config: str
    split: str
    rows: Sequence[dict[str, Any]]

    @property
    def path(self) -> str:
        """Its file inside a mirror."""
        return f"{self.dataset}/{self.config}/{self.split}.parquet"


def schema(dataset: str) -> pa.Schema:
    """Return the Arrow schema of a dataset as the Hub has it."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    targets = pa.struct({"choices": texts, "labels": pa.list_(pa.int32())})
    columns: dict[str, dict[str, pa.DataType]] = {
        ARC: {"id": text, "question": text, "choices": pa.struct({"text": texts, "label": texts}), "answerKey": text},
        HELLASWAG: {"ind": pa.int32(), "activity_label": text, "ctx_a": text, "ctx_b": text, "ctx": text}
        | {"endings": texts, "source_id": text, "split": text, "split_type": text, "label": text},
        MMLU: {"question": text, "subject": text, "choices": texts, "answer": pa.int64()},
        TRUTHFULQA: {"question": text, "mc1_targets": targets, "mc2_targets": targets},
    }
    return pa.schema(list(columns[dataset].items()))


def write(mirror: Path, tables: Iterable[Table]) -> dict[str, int]:
    """Write tables and each dataset's README into ``mirror`` and return the rows per file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: dict[str, int] = {}
    for table in tables:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(list(table.rows), schema=schema(table.dataset)), buffer, compression="zstd")
        write_bytes(mirror / table.path, buffer.getvalue())
        rows[table.path] = len(table.rows)
    for dataset in sorted({path.rsplit("/", 2)[0] for path in rows}):
        write_bytes(mirror / dataset / "README.md", _readme(dataset, sorted(rows)).encode())
    return dict(sorted(rows.items()))


def _readme(dataset: str, paths: Sequence[str]) -> str:
    lines = ["---", f"license: {LICENCES[dataset].lower()}", "configs:"]
    last = None
    for config, file in (p.removeprefix(f"{dataset}/").split("/") for p in paths if p.startswith(f"{dataset}/")):
        if config != last:
            lines += [f"- config_name: {config}", "  data_files:"]
        lines += [f"  - split: {file.removesuffix('.parquet')}", f"    path: {config}/{file}"]
        last = config
    return "\n".join([*lines, "---", ""])


def read(mirror: Path, dataset: str, config: str | None) -> datasets.DatasetDict:
    """Return a configuration's splits, read into memory from the files as they are now.

    ``datasets.load_dataset`` on a local folder is not used: it caches under the folder's base name and
    configuration alone, and so gives old rows after the files change (datasets 5.2).
    Raises DataError when the mirror has no such configuration.
    """
    import datasets
    import pyarrow.parquet as pq

    folder = mirror / dataset / (config or DEFAULT)
    files = {s: folder / f"{s}.parquet" for s in SPLITS if (folder / f"{s}.parquet").is_file()}
    if not files:
        known = sorted(p.parent.relative_to(mirror).as_posix() for p in mirror.rglob("*.parquet"))
        raise DataError(
            f"{folder}: no data; expected the benchmark {dataset} there. "
            f"Build it (dvc repro benchmarks); {did_you_mean(f'{dataset}/{config or DEFAULT}', set(known))}"
        )
    return datasets.DatasetDict({s: datasets.Dataset(pq.read_table(f)) for s, f in files.items()})
