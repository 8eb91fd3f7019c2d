"""What a model says of answers: loss and rewards over held-out rows, from its own logits, no trainer involved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llm360.finetune.chat import Encoded

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

IGNORE = -100


def answer_logps(model: PreTrainedModel, rows: Sequence[Encoded], *, batch: int) -> list[float]:
    """Return each row's log probability of its answer tokens given all before them, in nats, fp32."""
    import torch

    training = model.training
    model.eval()
    with torch.no_grad():
        values = [v for i in range(0, len(rows), batch) for v in _batch_logps(model, rows[i : i + batch])]
    model.train(training)
    return values


def _batch_logps(model: PreTrainedModel, rows: Sequence[Encoded]) -> list[float]:
    import torch

    ids, labels = pad(rows)
    logits: Any = model(input_ids=ids.to(model.device), use_cache=False).logits.float()
    target = labels[:, 1:].to(logits.device)
    logps = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    sums: list[float] = (logps * (target != IGNORE)).sum(dim=1).tolist()
    return sums


def pad(rows: Sequence[Encoded]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and labels, int64 [rows, longest]; a causal model never sees the right padding."""
    import torch

    width = max(len(r.ids) for r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    labels = torch.full_like(ids, IGNORE)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        labels[i, : len(row.ids)] = torch.tensor(label_ids(row))
    return ids, labels


def label_ids(row: Encoded) -> list[int]:
    """Return the ids with all but the answers' set to -100."""
    return [token if mine else IGNORE for token, mine in zip(row.ids, row.answer, strict=True)]


def answer_loss(model: PreTrainedModel, rows: Sequence[Encoded], *, batch: int) -> float:
    """Return the cross entropy per answer token over all rows, in nats."""
    return -sum(answer_logps(model, rows, batch=batch)) / sum(sum(r.answer) for r in rows)


def rewards(
    policy: Sequence[tuple[float, float]], reference: Sequence[tuple[float, float]], *, beta: float
) -> dict[str, float]:
    """Return DPO's implicit rewards, averaged over pairs of (chosen, rejected) log probabilities.

    reward = beta * (log p_policy - log p_reference); margin = chosen - rejected; accuracy = share of margins above 0.
    """
    pairs = [(beta * (pc - rc), beta * (pr - rr)) for (pc, pr), (rc, rr) in zip(policy, reference, strict=True)]
    margins = [chosen - rejected for chosen, rejected in pairs]
    return {
        "rewards/chosen": _mean([c for c, _ in pairs]),
        "rewards/rejected": _mean([r for _, r in pairs]),
        "rewards/margins": _mean(margins),
        "rewards/accuracies": _mean([float(m > 0) for m in margins]),
        "logps/chosen": _mean([c for c, _ in policy]),
        "logps/rejected": _mean([r for _, r in policy]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
