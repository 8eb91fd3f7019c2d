"""CrystalCoder, LLM360's 7B model of language and code, in three phases (the Hub's LLM360/Crystal).

A checkpoint's index is its step in the whole run, because its branches are named by phase and step and the list
of the 143 published ones is nowhere but in the repository's branches.
"""

from registry.ids import Kind
from registry.suite import ByStep, Gap, Hub, Phase, Suite, Unpublished

TOKENS_PER_STEP = 2112 * 2048  # crystalcoder-train params.yaml: global batch x sequence length
STEPS = {"phase1": 79_721, "phase2": 214_387, "phase3": 27_728}  # crystalcoder-train params.yaml and branch names

START = {"phase1": 0, "phase2": STEPS["phase1"], "phase3": STEPS["phase1"] + STEPS["phase2"]}
LAST = sum(STEPS.values())
KNOWN = {  # branches seen in cards, code and the paper; the rest comes from the Hub
    "phase1": (1_500, 33_000, 55_500, 64_500),
    "phase2": (18_000, 51_000, 81_000, 114_000, 144_000, 174_000, 207_000, 214_387),
    "phase3": (27_728,),
}

SUITE = Suite(
    name="crystal",
    title="CrystalCoder 7B on the Hub: three phases, 143 checkpoints named by phase and step",
    phases=tuple(
        Phase(
            name=name,
            first=START[name] + 1,
            last=START[name] + steps,
            steps=steps,
            tokens=steps * TOKENS_PER_STEP,
        )
        for name, steps in STEPS.items()
    ),
    hub=Hub(
        repo="LLM360/Crystal",  # once LLM360/CrystalCoder, which redirects
        dataset="LLM360/CrystalCoderDatasets",
        total=143,
        ckpts=tuple(START[phase] + step for phase, steps in KNOWN.items() for step in steps),
    ),
    revisions=ByStep(form="CrystalCoder_phase{phase}_checkpoint_{step:06d}", main=LAST),
    gaps=(
        Gap(
            kind=Kind.OPTIMIZER,
            indices=None,
            reason="no optimizer state is in any branch",
            source="the branches of LLM360/Crystal",
        ),
        Gap(
            kind=Kind.CHUNK,
            indices=None,
            reason="the data is HDF5 files packed by source, not in numbered chunks that correspond to checkpoints",
            source="the files of datasets/LLM360/CrystalCoderDatasets",
        ),
        Gap(
            kind=Kind.LOG,
            indices=None,
            reason="training logs are on Weights & Biases (wandb.ai/llm360/CrystalCoder), not on the Hub",
            source="Analysis360 README",
        ),
    ),
    no_order=Unpublished(
        reason="the data was shuffled on disk before training and published packed by source, without that order",
        source="crystalcoder-train params.yaml; the files of datasets/LLM360/CrystalCoderDatasets",
    ),
    notes=(
        "Phase 3 has 119.93 B tokens by its parameters file, 110 B by the paper (crystalcoder-train params.yaml).",
        "The repository's model code needs trust_remote_code, which is never turned on here.",
    ),
)
