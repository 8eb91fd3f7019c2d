"""Amber, LLM360's 7B model: 360 chunks, 360 checkpoints (paper section 4.1; the Hub's LLM360/Amber)."""

from registry.ids import Kind
from registry.suite import ChunkLines, Gap, Hub, Numbered, Phase, Suite, Unpublished

STEPS_PER_CHUNK = 1_706_976 // 2240  # amber-train main.py: examples per chunk // global batch
TOKENS_PER_STEP = 2240 * 2048  # targets; Table 2's 1259.13 B counts the 2049th token of each row as well

SUITE = Suite(
    name="amber",
    title="Amber 7B on the Hub: one phase, 360 checkpoints",
    phases=(
        Phase(
            name="pretrain",
            first=0,
            last=359,
            steps=360 * STEPS_PER_CHUNK,
            tokens=360 * STEPS_PER_CHUNK * TOKENS_PER_STEP,
        ),
    ),
    hub=Hub(
        repo="LLM360/Amber",
        dataset="LLM360/AmberDatasets",
        # the files of the data set, 20.8 GB each; LLaMA's 32,000 ids (amber-data-prep)
        chunks=ChunkLines(path="train/train_{chunk:03d}.jsonl", row_tokens=2049, vocab_size=32_000),
    ),
    revisions=Numbered(main=359),  # there is no branch ckpt_359 (model card)
    gaps=(
        Gap(
            kind=Kind.OPTIMIZER,
            indices=None,
            reason="optimizer states were not released: the run did not keep them",
            source="LLM360 paper, section 4.1.5",
        ),
        Gap(
            kind=Kind.LOG,
            indices=None,
            reason="training logs are on Weights & Biases (wandb.ai/llm360/Amber), not on the Hub",
            source="Analysis360 README",
        ),
    ),
    no_order=Unpublished(
        reason="the order of rows inside a chunk was drawn at run time, seeded at the start of the process, and the "
        "restarts were not published; exact is only which chunks a checkpoint saw (chunks_seen)",
        source="amber-train main.py; LLM360 paper, section 4.1.5",
    ),
    notes=(
        "Four of the 360 chunks gave NaN and were skipped; the first four chunks were repeated at the end. Which four "
        "was not published, so chunks_seen is exact but for them (paper section 4.1.5).",
        "Early checkpoints were saved in bfloat16 by mistake (paper section 4.1.5).",
    ),
)
