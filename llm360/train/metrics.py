"""What the steps of a chunk measured, as lines: numbers that a replay gives again, and apart what a clock says."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.train.loop import StepMetrics

if TYPE_CHECKING:
    from llm360.checkpoint import TrainState
    from llm360.flops import Meter


def step_lines(
    measured: Sequence[StepMetrics],
    *,
    key: Mapping[str, Any],
    before: TrainState,
    step_tokens: int,
    batch_size: int,
    earlier: Sequence[StepMetrics] = (),
) -> list[dict[str, Any]]:
    """Return a metrics line per step, the same in every replay; a number that is not finite is null.

    key: suite, phase, chunk; before: where the run stood before the first of these steps; step_tokens: targets of one
    step; batch_size: rows. earlier: the steps of the same pass that came before, of a run that was resumed within it.
    grad_square and grad_variance are ``gradient_estimates``; noise_scale is the quotient of their means over the pass
    so far, in rows, null while that of grad_square is not above 0.
    """
    estimates = [gradient_estimates(step, batch_size) for step in (*earlier, *measured)]
    noise = _running_noise_scale(estimates)[len(earlier) :]
    lines = []
    for i, (step, (square, variance)) in enumerate(zip(measured, estimates[len(earlier) :], strict=True)):
        numbers = {"loss": finite(step.loss), "grad_norm": finite(step.grad_norm), "learning_rate": step.learning_rate}
        numbers |= {"grad_square": square, "grad_variance": variance, "noise_scale": noise[i]}
        lines.append({**_place(i + 1, key, before), **_seen(i + 1, before, step_tokens), **numbers})
    return lines


def clock_lines(
    measured: Sequence[StepMetrics],
    *,
    key: Mapping[str, Any],
    before: TrainState,
    step_tokens: int,
    meter: Meter | None = None,
) -> list[dict[str, Any]]:
    """Return what a clock says of each step: seconds, tokens_per_second, mfu (null without a meter).

    host_bytes and device_bytes are this process's memory as of now, see ``memory``: the same on every line.
    """
    lines, now = [], memory()
    for i, step in enumerate(measured, start=1):
        rate = step_tokens / step.seconds
        speed = {"seconds": step.seconds, "tokens_per_second": rate, "mfu": None if meter is None else meter.mfu(rate)}
        lines.append({**_place(i, key, before), **speed, **now})
    return lines


def _place(number: int, key: Mapping[str, Any], before: TrainState) -> dict[str, Any]:
    return {**key, "step": before.step + number}


def _seen(number: int, before: TrainState, step_tokens: int) -> dict[str, int]:
    return {"phase_step": before.phase_step + number, "tokens_seen": before.tokens_seen + number * step_tokens}


def gradient_estimates(step: StepMetrics, batch_size: int) -> tuple[float | None, float | None]:
    """Return unbiased estimates of |G|^2 and tr(Sigma) from one step, (None, None) where it gives none.

    G is the true gradient, Sigma the covariance of a single row's gradient. They follow from the squared norms of the
    gradient over the whole batch and over its first micro_rows rows (McCandlish et al. 2018, An Empirical Model of
    Large-Batch Training, appendix A.1); either may be below 0. A step that was one backward pass gives none, nor does
    one that is not finite.
    """
    if step.micro_grad_norm is None or step.micro_rows >= batch_size or not step.finite:
        return None, None
    small, big = step.micro_grad_norm * step.micro_grad_norm, step.grad_norm * step.grad_norm
    square = (batch_size * big - step.micro_rows * small) / (batch_size - step.micro_rows)
    variance = (small - big) / (1 / step.micro_rows - 1 / batch_size)
    return (square, variance) if math.isfinite(square) and math.isfinite(variance) else (None, None)


def _running_noise_scale(estimates: Iterable[tuple[float | None, float | None]]) -> list[float | None]:
    """Return after each step the simple noise scale B = tr(Sigma) / |G|^2, each the mean over the steps up to it."""
    squares, variances, found = 0.0, 0.0, []
    for square, variance in estimates:
        squares += square or 0.0
        variances += variance or 0.0
        found.append(finite(variances / squares) if squares > 0 else None)
    return found


def finite(number: float) -> float | None:
    """Return the number, or None for one that JSON cannot hold."""
    return number if math.isfinite(number) else None


def memory() -> dict[str, int | None]:
    """Return host_bytes, this process's resident memory (null but on Linux), and device_bytes, the GPU's peak."""
    import torch

    statm = Path("/proc/self/statm")
    cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    pages = int(statm.read_text().split()[1]) if statm.is_file() else None
    return {
        "host_bytes": None if pages is None else pages * os.sysconf("SC_PAGE_SIZE"),
        "device_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }
