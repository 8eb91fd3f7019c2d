"""A mirror of the Hub's benchmark folders, built without the Hub: from packages, or made up for smoke runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from llm360.evaluation import synthetic, tables, wheels
from llm360.files import new_folder, write_manifest
from llm360.progress import say

FORMAT = "llm360-benchmarks/1"

# Hendrycks et al. 2020, Measuring Massive Multitask Language Understanding: its 57 subjects.
NAMES = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology college_chemistry
    college_computer_science college_mathematics college_medicine college_physics computer_security conceptual_physics
    econometrics electrical_engineering elementary_mathematics formal_logic global_facts high_school_biology
    high_school_chemistry high_school_computer_science high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics high_school_mathematics high_school_microeconomics
    high_school_physics high_school_psychology high_school_statistics high_school_us_history high_school_world_history
    human_aging human_sexuality international_law jurisprudence logical_fallacies machine_learning management marketing
    medical_genetics miscellaneous moral_disputes moral_scenarios nutrition philosophy prehistory
    professional_accounting professional_law professional_medicine professional_psychology public_relations
    security_studies sociology us_foreign_policy virology world_religions
"""
SUBJECTS = tuple(NAMES.split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkParams:
    """Where benchmarks come from.

    packages: real data that Python packages ship. local: a few made-up items, for smoke runs and tests.
    hub: nothing is mirrored, lm-eval reads the Hub.
    """

    source: Literal["packages", "local", "hub"]


def build(folder: Path, params: BenchmarkParams) -> None:
    """Build the mirror in ``folder`` with a manifest of packages, licences and rows per file.

    Raises SourceError when a package cannot be fetched; an older mirror then stays as it is.
    """
    make = {"packages": _from_packages, "local": _synthetic, "hub": _nothing}[params.source]
    with new_folder(folder) as partial:
        fields = make(partial)
        write_manifest(partial, {"format": FORMAT, **fields})
    say(f"{folder}: {fields['benchmark']} benchmarks, {sum(fields['rows'].values())} rows")


def _from_packages(folder: Path) -> dict[str, Any]:
    with wheels.fetched() as archives:
        rows = tables.write(folder, wheels.tables(archives, SUBJECTS))
    packages = [dataclasses.asdict(w) for w in wheels.WHEELS]
    licences, notes = tables.LICENCES, wheels.NOTES
    return {"benchmark": "packages", "packages": packages, "licences": licences, "rows": rows, "notes": notes}


def _synthetic(folder: Path) -> dict[str, Any]:
    rows = tables.write(folder, synthetic.tables(SUBJECTS))
    notes = ["made-up sums in the schemas of the real benchmarks; the scores say nothing about a model"]
    return {"benchmark": "synthetic", "packages": [], "licences": {}, "rows": rows, "notes": notes}


def _nothing(folder: Path) -> dict[str, Any]:
    notes = ["nothing is mirrored: lm-eval reads the Hub, so the network is needed and the Hub's data may change"]
    return {"benchmark": "hub", "packages": [], "licences": {}, "rows": {}, "notes": notes}
