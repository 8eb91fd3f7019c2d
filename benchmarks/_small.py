"""What the experiments on small models share: real text as bytes, rows of it, a step of training, a figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks._corpus import installed_texts
from llm360.files import write_bytes
from llm360.train.loop import next_token_loss
from llm360.train.optimizer import OptimizerParams

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel

VOCAB_SIZE = 256  # a token is a byte
MEGABYTES = 4.0
HELD_OUT = 0.1  # the corpus' end
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
GREY, RED = "#8a929e", "#b5484b"


def write_corpus(path: Path) -> Path:
    """Write the first 4 MB of the installed text as one file of bytes."""
    kept = bytearray()
    for text in installed_texts():
        kept += text.text.encode()
        if len(kept) >= MEGABYTES * 1e6:
            break
    path.write_bytes(kept[: int(MEGABYTES * 1e6)])
    return path


def rows(corpus: Path, *, held_out: bool, count: int, batch: int, length: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield ``count`` batches of rows that begin anywhere, int64 [batch, length + 1]; equal for equal arguments."""
    data = np.fromfile(corpus, dtype=np.uint8)
    cut = int(len(data) * (1 - HELD_OUT))
    part = torch.from_numpy(data[cut:] if held_out else data[:cut])
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(len(part) - length, (batch,), generator=generator)
        yield torch.stack([part[start : start + length + 1].long() for start in starts])


def take_step(
    model: PreTrainedModel, optimizer: torch.optim.AdamW, tokens: torch.Tensor, *, rate: float, params: OptimizerParams
) -> float:
    """Take one step as the training loop does, and return its loss in nats per token."""
    loss = next_token_loss(model, tokens, reduction="mean")
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), params.clip_norm)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


@torch.no_grad()
def losses(model: PreTrainedModel, batches: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the loss of each place of a row, the mean over all rows, in nats, [length]."""
    return torch.cat([next_token_loss(model, tokens, reduction="none") for tokens in batches]).mean(0)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent runs and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


def save_figure(fig: Figure, name: str) -> None:
    """Write a figure as docs/figures/<name>.svg; the bytes are equal for equal numbers."""
    from analyses.common.plot import svg

    FIGURES.mkdir(parents=True, exist_ok=True)
    write_bytes(FIGURES / f"{name}.svg", svg(fig))


def print_result(result: dict[str, Any]) -> None:
    """Print the last line: one JSON object, numbers to five digits."""
    print(json.dumps(result, default=float))
