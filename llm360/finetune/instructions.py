"""Instruction and preference data from the project's own documents, with their licences.

    sft_train.jsonl, sft_test.jsonl   {"id", "template", "document", "licence", "messages": [user, assistant]}
    dpo_train.jsonl, dpo_test.jsonl   {..., "prompt": [user], "chosen": [assistant], "rejected": [assistant]}

A document is either in train or in test, and so is an unsafe request; no answer of a test row, chosen or rejected,
occurs in train. Every choice is a hash of the seed and the document's id, so the rows do not depend on the order of
the documents.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.errors import ConfigError, DataError
from llm360.files import new_folder, write_bytes, write_manifest
from llm360.finetune.chat import ASSISTANT, HUMAN
from llm360.finetune.preferences import FAULTS, refusal, rejected, split_acts
from llm360.finetune.rows import Candidate, Row, answers, dpo_row, number, sft_row
from llm360.finetune.templates import TEMPLATES, Draft, drafts

if TYPE_CHECKING:
    import polars as pl

FORMAT = "llm360-instructions/1"
MARKERS = (HUMAN, ASSISTANT, "<s>", "</s>", "<unk>")  # text that would read as structure once rendered
SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstructionParams:
    """Rows of each file; refusals is the share of preference pairs about unsafe requests."""

    seed: int
    sft_train: int
    sft_test: int
    dpo_train: int
    dpo_test: int
    refusals: float
    max_characters: int  # of prompt and answer together, so that they fit the sequence length
    min_answer_characters: int

    def __post_init__(self) -> None:
        if not 0 <= self.refusals <= 1:
            raise ConfigError(f"refusals: read {self.refusals}, expected a share from 0 to 1")
        for name in ("sft_train", "sft_test", "dpo_train", "dpo_test"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: read {getattr(self, name)}, expected at least 1 row")

    @property
    def test_share(self) -> float:
        """Return the share of documents that is held out."""
        test = self.sft_test + self.dpo_test
        return test / (test + self.sft_train + self.dpo_train)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instructions:
    """The rows by file name without suffix, and how many drafts were left out, by reason."""

    rows: Mapping[str, list[Row]]
    documents: Mapping[str, int]
    left_out: Mapping[str, int]


def make_instructions(documents: pl.DataFrame, params: InstructionParams) -> Instructions:
    """Make all four sets from documents (columns of Document); raises DataError when a set would be empty."""
    builder = _Builder(params)
    rows: dict[str, list[Row]] = {}
    counts = {}
    for split in SPLITS:
        part = [d for d in documents.iter_rows(named=True) if _split(params, d["id"]) == split]
        counts[split] = len(part)
        rows |= builder.split_rows(split, part)
        builder.known = {a for made in rows.values() for row in made for a in answers(row)}
    for name, made in rows.items():
        if not made:
            raise DataError(f"{name}: no row from {len(documents)} documents ({dict(builder.left_out)}); add sources")
    return Instructions(rows=rows, documents=counts, left_out=dict(sorted(builder.left_out.items())))


def _split(params: InstructionParams, document: str) -> str:
    return "test" if number(params.seed, "split", document) / 2**64 < params.test_share else "train"


class _Builder:
    """Takes drafts that fit and were not asked before; counts the others. known: answers of the splits before."""

    def __init__(self, params: InstructionParams) -> None:
        self.params = params
        self.prompts: set[str] = set()
        self.known: set[str] = set()
        self.acts = split_acts(params.test_share, lambda act: number(params.seed, "act", act))
        self.left_out: collections.Counter[str] = collections.Counter()

    def split_rows(self, split: str, documents: Sequence[Row]) -> dict[str, list[Row]]:
        """Return the SFT and DPO rows of a split; no draft serves both."""
        p = self.params
        sft, dpo = (p.sft_train, p.dpo_train) if split == "train" else (p.sft_test, p.dpo_test)
        unsafe = round(dpo * p.refusals)
        taken = list(itertools.islice(self._round_robin(documents), sft + dpo - unsafe))
        # where texts are few, both sets shrink alike
        border = sft if len(taken) == sft + dpo - unsafe else len(taken) * sft // (sft + dpo - unsafe)
        pairs = [*self._helpful(taken[border:]), *itertools.islice(self._refusals(split, documents), unsafe)]
        rows = {f"sft_{split}": [sft_row(c) for c in taken[:border]], f"dpo_{split}": pairs}
        return {name: sorted(made, key=lambda r: number(p.seed, "order", r["id"])) for name, made in rows.items()}

    def _round_robin(self, documents: Sequence[Row]) -> Iterator[Candidate]:
        """Yield from each template in turn, so that all are there as long as they last."""
        streams = [self._candidates(t, documents) for t in TEMPLATES]
        for layer in itertools.zip_longest(*streams):
            yield from (c for c in layer if c is not None)

    def _candidates(self, template: str, documents: Sequence[Row]) -> Iterator[Candidate]:
        for document in self._shuffled(template, documents):
            for draft in drafts(document["kind"], template, document["text"]):
                if self._accept(draft):
                    yield Candidate(
                        template=template, draft=draft, document=document["id"], licence=document["licence"]
                    )

    def _shuffled(self, purpose: str, documents: Sequence[Row]) -> list[Row]:
        return sorted(documents, key=lambda d: number(self.params.seed, purpose, d["id"]))

    def _accept(self, draft: Draft) -> bool:
        reason = self._fault(draft)
        if reason:
            self.left_out[reason] += 1
        else:
            self.prompts.add(draft.prompt)
        return not reason

    def _fault(self, draft: Draft) -> str:
        text = draft.prompt + draft.answer
        if len(text) > self.params.max_characters:
            return "too long"
        if len(draft.answer) < self.params.min_answer_characters:
            return "answer too short"
        if any(m in text for m in MARKERS):
            return "holds a role marker or special token"
        if draft.answer in self.known:
            return "test answer occurs in train"
        return "prompt asked before" if draft.prompt in self.prompts else ""

    def _helpful(self, candidates: Sequence[Candidate]) -> Iterator[Row]:
        for i, candidate in enumerate(candidates):
            fault, other = FAULTS[i % len(FAULTS)], candidates[i - 1].draft
            variant = number(self.params.seed, fault, candidate.document)
            worse = rejected(candidate.draft, other, fault=fault, number=variant)
            if self._worse(candidate.draft, worse):
                yield dpo_row(candidate, fault, worse)

    def _worse(self, draft: Draft, answer: str) -> bool:
        same, known = answer == draft.answer, answer in self.known
        if same or known:
            self.left_out["no worse answer" if same else "test rejected answer occurs in train"] += 1
        return not same and not known

    def _refusals(self, split: str, documents: Sequence[Row]) -> Iterator[Row]:
        for document in self._shuffled("refusal", documents):
            variant = number(self.params.seed, "unsafe", document["id"])
            made = refusal(document["text"], self.acts[split], number=variant)
            if made and self._accept(made[0]) and self._worse(*made):
                candidate = Candidate(
                    template="refusal", draft=made[0], document=document["id"], licence=document["licence"]
                )
                yield dpo_row(candidate, "unsafe", made[1])


def write_instructions(
    folder: Path, made: Instructions, *, params: InstructionParams, fields: Mapping[str, Any]
) -> None:
    """Write the four jsonl files and the manifest with the counts by template, fault and licence."""
    with new_folder(folder) as partial:
        for name, rows in made.rows.items():
            write_bytes(partial / f"{name}.jsonl", "".join(_line(r) for r in rows).encode())
        counts = {name: _counts(rows) | {"asked": getattr(params, name)} for name, rows in made.rows.items()}
        write_manifest(
            partial,
            {
                "format": FORMAT,
                "params": dataclasses.asdict(params),
                "documents": dict(made.documents),
                "rows": counts,
                "left_out": dict(made.left_out),
                **fields,
            },
        )


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n"


def _counts(rows: Sequence[Row]) -> dict[str, Any]:
    columns = [c for c in ("template", "fault", "licence") if c in rows[0]]
    by = {f"by_{c}": dict(sorted(collections.Counter(r[c] for r in rows).items())) for c in columns}
    return {"rows": len(rows), **by}


def read_rows(path: Path) -> list[Row]:
    """Return the rows of one jsonl file; raises DataError naming the line that cannot be read."""
    rows = []
    for i, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        try:
            if line:
                rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {i}: not JSON ({error}); rebuild it: dvc repro instructions") from error
    return rows
