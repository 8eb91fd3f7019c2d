"""What the SFT and the DPO trainer share: settings, adapters, log rows, and the model as it was before patches."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm360.errors import DataError, TrainingError
from llm360.finetune.chat import Encoded
from llm360.finetune.measure import answer_loss, label_ids
from llm360.finetune.recipe import Lora, Recipe
from llm360.progress import track

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CLOCK = ("runtime", "per_second")  # what a clock says; never in an artifact
FUSED_TOLERANCE = 1e-3  # nats per token between the trainer's loss and the model's own, fp32 rounding far below


def arguments(recipe: Recipe, folder: str) -> dict[str, Any]:
    """Return the trainers' arguments: every optimizer step logged, nothing saved, nothing sent, equal bytes twice."""
    return {
        "output_dir": folder,
        "num_train_epochs": recipe.epochs,
        "learning_rate": recipe.learning_rate,
        "per_device_train_batch_size": recipe.batch,
        "gradient_accumulation_steps": recipe.accumulation,
        "lr_scheduler_type": recipe.schedule,
        "warmup_steps": recipe.warmup_ratio,  # below 1 it is read as a ratio
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.clip_norm,
        "max_length": recipe.max_length,
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "bf16": recipe.bf16,
        "optim": "adamw_torch",  # the fused one gives other bits
        "use_cpu": device() == "cpu",
        "activation_checkpointing": False,
        "dataloader_pin_memory": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would log a mean in place of a NaN
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def device() -> str:
    """Return where the trainers put the model."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def peft_config(lora: Lora | None) -> Any:
    """Return peft's LoraConfig, or None to train every weight."""
    if lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
    )


def quiet(trainer: type[Any]) -> type[Any]:
    """Return the trl trainer as a class that neither prepares rows again nor reports its use to its makers."""

    class Quiet(trainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def _send_telemetry(self) -> None:
            return

    return Quiet


def train(trainer: Any, *, label: str) -> PreTrainedModel:
    """Train, merge adapters, and return the model in eval mode without the patches that trainers leave on it.

    Raises TrainingError when a logged loss is not finite.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_watch(label))
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
        model.requires_grad_(True)
    return _unpatched(model)


def _unpatched(model: PreTrainedModel) -> PreTrainedModel:
    """Undo what trl, accelerate and transformers leave on the instance: forward, marks, no cache."""
    for name in ("forward", "_original_forward", "_is_accelerate_prepared", "model_tags"):
        model.__dict__.pop(name, None)
    model.config.use_cache = True
    return model.eval()


def _watch(label: str) -> Any:
    """Show progress, and stop at the first loss that is not finite."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps: Iterator[int] = track(range(state.max_steps + 1), label=label, total=state.max_steps)
            next(self.steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            next(self.steps, None)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            _require_finite(logs or {}, label, state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps.close()  # type: ignore[attr-defined]

    return Watch()


def _require_finite(row: Mapping[str, Any], label: str, step: int) -> None:
    if not math.isfinite(row.get("loss", 0.0)):
        raise TrainingError(f"{label}: loss {row['loss']} at step {step}; lower the learning rate")


def log_rows(trainer: Any) -> list[dict[str, Any]]:
    """Return one row per optimizer step: step, loss, learning_rate, grad_norm, rewards ..., nothing of a clock."""
    rows = [r for r in trainer.state.log_history if "loss" in r]
    return [{k: v for k, v in r.items() if not any(c in k for c in CLOCK)} for r in rows]


def fit(rows: Sequence[Encoded], max_length: int) -> tuple[list[Encoded], dict[str, int]]:
    """Cut rows to ``max_length`` and drop those without an answer token left; return them and the counts.

    Raises DataError when none is left.
    """
    cut = [r.cut(max_length) for r in rows]
    kept = [r for r in cut if any(r.answer)]
    counts = {
        "rows": len(rows),
        "used": len(kept),
        "dropped_prompt_too_long": len(rows) - len(kept),
        "cut": sum(len(r.ids) > max_length and any(r.answer[:max_length]) for r in rows),
    }
    if not kept:
        raise DataError(f"{len(rows)} rows, none with an answer within {max_length} tokens; raise max_length")
    return kept, counts


def sft_dataset(rows: Sequence[Encoded]) -> Any:
    """Return trl's form of tokenized rows: input_ids and labels."""
    from datasets import Dataset

    return Dataset.from_list([{"input_ids": r.ids, "labels": label_ids(r)} for r in rows])


def require_own_loss(trainer: Any, model: PreTrainedModel, row: Encoded) -> None:
    """Raise TrainingError unless trl's fused head gives the model's own loss.

    It multiplies by the output weights itself, so a model that scales its logits in a way it does not know (muP)
    would be trained on another loss without a word.
    """
    import torch

    ids = torch.tensor([row.ids], device=model.device)
    labels = torch.tensor([label_ids(row)], device=model.device)
    with torch.no_grad():
        fused = trainer.model(input_ids=ids, labels=labels, fused_lm_head=True).loss.item()
    own = answer_loss(model, [row], batch=1)
    if abs(fused - own) > FUSED_TOLERANCE:
        raise TrainingError(
            f"the trainer's loss is {fused:.4f}, the model's own {own:.4f}: trl does not know how "
            f"{type(model).__name__} scales its logits; give its config a logit_scale"
        )


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for what a trainer insists on writing; it goes with the context."""
    return tempfile.TemporaryDirectory(prefix="llm360-trainer-")
