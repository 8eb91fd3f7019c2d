"""One checkpoint on disk: a folder that plain ``from_pretrained`` loads, with all that training needs to go on.

    model.safetensors  config.json  generation_config.json  tokenizer files   (weights in fp32)
    optimizer.safetensors   "<parameter>|exp_avg", "<parameter>|exp_avg_sq", fp32; "step", float32 scalar
    state.json              step, tokens, chunk, position, RNG state
    manifest.json           written last: no manifest, no checkpoint

Nothing is pickled, and no file holds a time or a path, so equal training gives equal bytes.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.config import from_mapping
from llm360.data.tokens.tokenizer import load_tokenizer as load_tokenizer
from llm360.errors import IntegrityError, TrainingError
from llm360.files import manifest_sha256, new_folder, read_json, verify, write_json, write_manifest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FORMAT = "llm360-checkpoint/1"
OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Where a run stands, apart from its tensors.

    step, tokens_seen and chunks_seen count over the whole suite; phase_step counts within the phase.
    chunk is the index in the suite of the last chunk that was finished, -1 before the first.
    """

    step: int
    phase_step: int
    tokens_seen: int
    chunks_seen: int
    chunk: int
    torch_rng: str  # base64 of torch.get_rng_state()

    @staticmethod
    def read(folder: Path) -> TrainState:
        """Read ``state.json`` of a checkpoint folder."""
        return from_mapping(TrainState, read_json(folder / STATE), where=str(folder / STATE))


def initial_state(seed: int) -> TrainState:
    """Return the state before the first step; the random state is that of ``seed``, whatever ran before."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        rng = rng_state()
    return TrainState(step=0, phase_step=0, tokens_seen=0, chunks_seen=0, chunk=-1, torch_rng=rng)


def rng_state() -> str:
    """Return torch's CPU random state as base64."""
    import torch

    return base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()


def set_rng_state(text: str) -> None:
    """Set torch's CPU random state from base64."""
    import numpy as np
    import torch

    torch.set_rng_state(torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype=np.uint8).copy()))


def save(
    folder: Path,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    optimizer: torch.optim.Optimizer | None,
    state: TrainState,
    fields: Mapping[str, Any],
) -> str:
    """Write a whole checkpoint by rename and return the sha256 of its manifest.

    ``fields`` are the manifest's own: suite, phase, ckpt, parent, chunk hashes, fingerprint, environment.
    Raises TrainingError when a weight is not fp32: less precision than trained is never saved unsaid.
    """
    _require_fp32(model)
    _quiet()
    with new_folder(folder) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        if optimizer is not None:
            _save_tensors(partial / OPTIMIZER, optimizer_tensors(model, optimizer))
        write_json(partial / STATE, dataclasses.asdict(state))
        totals: dict[str, Any] = {"step": state.step, "phase_step": state.phase_step, "tokens_seen": state.tokens_seen}
        totals |= {"chunks_seen": state.chunks_seen, "dtype": "float32", "optimizer": optimizer is not None}
        write_manifest(partial, {"format": FORMAT, **totals, **fields})
    return manifest_sha256(folder)


def _quiet() -> None:
    """One bar for each of hundreds of small files says nothing."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _require_fp32(model: PreTrainedModel) -> None:
    import torch

    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32:
            raise TrainingError(f"{name} is {weight.dtype}, expected torch.float32; keep master weights in fp32")


def _save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path)


def optimizer_tensors(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return AdamW's state as flat named tensors; the step count is one scalar, equal for all parameters."""
    import torch

    tensors: dict[str, torch.Tensor] = {}
    step = torch.zeros(())
    for name, weight in model.named_parameters():
        if moments := optimizer.state.get(weight):
            step = moments["step"]
            tensors |= {f"{name}|{m}": moments[m] for m in MOMENTS}
    return {**tensors, "step": step}


def restore_optimizer(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint's AdamW state into ``optimizer``, bit for bit.

    Raises IntegrityError when the state does not name exactly the model's parameters.
    """
    from safetensors.torch import load_file

    tensors = load_file(folder / OPTIMIZER)
    step = tensors.pop("step")
    if not tensors and step.item() == 0:
        return
    expected = {f"{n}|{m}" for n, _ in model.named_parameters() for m in MOMENTS}
    if expected != tensors.keys():
        odd = sorted(expected ^ tensors.keys())[:3]
        raise IntegrityError(f"{folder / OPTIMIZER}: does not fit the model, e.g. {odd}; use this suite's checkpoint")
    for name, weight in model.named_parameters():
        optimizer.state[weight] = {"step": step.clone(), **{m: tensors[f"{name}|{m}"] for m in MOMENTS}}


def load_model(folder: Path, *, check: bool = True, **kwargs: Any) -> PreTrainedModel:
    """Return the checkpoint's model in eval mode after its files were checked against the manifest."""
    from transformers import AutoModelForCausalLM

    import llm360.model.hf  # noqa: F401  registers our own architectures with the Auto classes

    if check:
        verify(folder)
    _quiet()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **kwargs)
    return model.eval()
