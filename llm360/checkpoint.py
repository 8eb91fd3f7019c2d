"""One checkpoint on disk: a folder that plain ``from_pretrained`` loads, with all that training needs to go on.

    model.safetensors  config.json  generation_config.json  tokenizer files   (weights in fp32)
    optimizer.safetensors   "<parameter>|exp_avg", "<parameter>|exp_avg_sq", fp32; "step", float32 scalar
    state.json              step, tokens, chunk, position, RNG state
    manifest.json           written last: no manifest, no checkpoint

Tensors of more than MAX_FILE_BYTES are several files with an index, as transformers does it. Nothing is pickled, and
no file holds a time or a path, so equal training gives equal bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.config import from_mapping
from llm360.data.tokens.tokenizer import load_tokenizer as load_tokenizer
from llm360.errors import IntegrityError, TrainingError
from llm360.files import MANIFEST, manifest_sha256, new_folder, read_json, verify, write_json, write_manifest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FORMAT = "llm360-checkpoint/2"
WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
MOMENTS = ("exp_avg", "exp_avg_sq")
MAX_FILE_BYTES = 5_000_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A chunk whose training was not finite, and the suite's step, counted from 1, at which that showed."""

    chunk: int
    step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Where a run stands, apart from its tensors.

    step, tokens_seen and chunks_seen (finished passes over chunks) count over the whole suite; phase_step counts
    within the phase. chunk is the chunk that was finished last, -1 before the first; position is the number of steps
    taken in the one after it, 0 in every checkpoint of a suite. deferred and skipped are the phase's chunks that were
    not finite, at first and again.
    """

    step: int
    phase_step: int
    tokens_seen: int
    chunks_seen: int
    chunk: int
    position: int
    deferred: tuple[Failure, ...]
    skipped: tuple[Failure, ...]
    torch_rng: str  # base64 of torch.get_rng_state()

    @staticmethod
    def read(folder: Path) -> TrainState:
        """Read ``state.json`` of a checkpoint folder."""
        return from_mapping(TrainState, read_json(folder / STATE), where=str(folder / STATE))


@dataclasses.dataclass(frozen=True)
class Tensors:
    """A checkpoint's tensors by name, whole and on the CPU: weights and, where there is an optimizer, its state."""

    weights: Mapping[str, torch.Tensor]
    moments: Mapping[str, torch.Tensor] | None


def initial_state(seed: int) -> TrainState:
    """Return the state before the first step; the random state is that of ``seed``, whatever ran before."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        rng = rng_state()
    zero = dict.fromkeys(("step", "phase_step", "tokens_seen", "chunks_seen", "position"), 0)
    return TrainState(**zero, chunk=-1, deferred=(), skipped=(), torch_rng=rng)


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
    """Write a whole checkpoint by rename and return the sha256 of its manifest; see ``write``."""
    moments = None if optimizer is None else optimizer_tensors(model, optimizer)
    tensors = Tensors({name: p.detach() for name, p in model.named_parameters()}, moments)
    return write(folder, static=static_files(model, tokenizer), tensors=tensors, state=state, fields=fields)


def write(
    folder: Path,
    *,
    static: Mapping[str, bytes],
    tensors: Tensors,
    state: TrainState,
    fields: Mapping[str, Any],
    dtype: str = "float32",
) -> str:
    """Write a whole checkpoint by rename and return the sha256 of its manifest.

    static: the files that do not change in training; ``fields`` are the manifest's own: suite, phase, ckpt, parent,
    chunk hashes, fingerprint, environment. Raises TrainingError when a weight is not of the ``dtype`` that the
    manifest says: less precision than trained is never saved unsaid.
    """
    _require_dtype(tensors, dtype)
    with new_folder(folder) as partial:
        for name, data in static.items():
            (partial / name).write_bytes(data)
        _write_tensors(partial, WEIGHTS, tensors.weights)
        if tensors.moments is not None:
            _write_tensors(partial, OPTIMIZER, tensors.moments)
        write_json(partial / STATE, dataclasses.asdict(state))
        totals: dict[str, Any] = {"step": state.step, "phase_step": state.phase_step, "tokens_seen": state.tokens_seen}
        totals |= {"chunks_seen": state.chunks_seen, "dtype": dtype, "optimizer": tensors.moments is not None}
        write_manifest(partial, {"format": FORMAT, **totals, **fields})
    return manifest_sha256(folder)


def static_files(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> dict[str, bytes]:
    """Return the files of a checkpoint that training does not change: configuration and tokenizer."""
    with tempfile.TemporaryDirectory() as name:
        model.config.save_pretrained(name)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(name)
        tokenizer.save_pretrained(name)
        return _contents(Path(name))


def carried_files(folder: Path) -> dict[str, bytes]:
    """Return the files that a checkpoint hands on to the next one, byte for byte."""
    changing = {STATE, MANIFEST}
    return _contents(folder, lambda path: ".safetensors" not in path.name and path.name not in changing)


def _contents(folder: Path, wanted: Callable[[Path], bool] = Path.is_file) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if wanted(p)}


def _require_dtype(tensors: Tensors, dtype: str) -> None:
    for name, tensor in {**tensors.weights, **(tensors.moments or {})}.items():
        said = dtype if name in tensors.weights else "float32"
        if str(tensor.dtype) != f"torch.{said}":
            raise TrainingError(
                f"{name} is {tensor.dtype}, expected torch.{said}; keep master weights in fp32, "
                f"or say the lower precision: write(dtype=...) puts it into the manifest"
            )


def _write_tensors(folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    pattern = name.replace(".", "{suffix}.", 1)
    split = split_torch_state_dict_into_shards(dict(tensors), filename_pattern=pattern, max_shard_size=MAX_FILE_BYTES)
    for file, names in split.filename_to_tensors.items():
        save_file({n: tensors[n].contiguous() for n in names}, folder / file, metadata={"format": "pt"})
    if split.is_sharded:
        write_json(folder / f"{name}.index.json", {"metadata": split.metadata, "weight_map": split.tensor_to_filename})


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files that hold a checkpoint's tensors, ``model.safetensors`` or its shards, in order."""
    index = folder / f"{name}.index.json"
    names = sorted(set(read_json(index)["weight_map"].values())) if index.is_file() else [name]
    return [folder / n for n in names]


def tensors_of(folder: Path, name: str, expected: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a checkpoint's tensors one by one, as views of the mapped file.

    Raises IntegrityError when they are not exactly the ``expected`` ones.
    """
    from safetensors import safe_open

    found, wanted = set[str](), set(expected)
    for path in files_of(folder, name):
        with safe_open(path, framework="pt") as file:
            found |= set(file.keys())
            for key in file.keys():  # noqa: SIM118 - not a mapping
                if key in wanted:
                    yield key, file.get_tensor(key)
    if odd := sorted(found ^ wanted)[:3]:
        raise IntegrityError(f"{folder / name}: does not fit the model, e.g. {odd}; use this suite's checkpoint")


def optimizer_tensors(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return AdamW's state as flat named tensors; the step count is one scalar, equal for all parameters."""
    state = {name: optimizer.state[p] for name, p in model.named_parameters() if p in optimizer.state}
    tensors = {f"{name}|{kind}": s[kind] for name, s in state.items() for kind in MOMENTS}
    return {**tensors, "step": step_count(state.values())}


def step_count(states: Iterable[Mapping[str, torch.Tensor]]) -> torch.Tensor:
    """Return the optimizer's own count of steps, an fp32 scalar on the CPU; 0 before the first."""
    import torch

    return next((state["step"].detach().cpu().clone() for state in states), torch.zeros(()))


def steps_taken(folder: Path) -> torch.Tensor:
    """Return the optimizer's count of steps at a checkpoint, an fp32 scalar."""
    from safetensors import safe_open

    for path in files_of(folder, OPTIMIZER):
        with safe_open(path, framework="pt") as file:
            if "step" in file.keys():  # noqa: SIM118 - not a mapping
                step: torch.Tensor = file.get_tensor("step").clone()
                return step
    raise IntegrityError(f"{folder / OPTIMIZER}: holds no step; it is not AdamW's state: use a checkpoint of training")


def moments_of(folder: Path, parameters: Collection[str]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield (parameter, ``exp_avg`` or ``exp_avg_sq``, tensor) one by one; none when no step was taken yet.

    Raises IntegrityError when they do not name exactly the parameters.
    """
    taken = steps_taken(folder).item() > 0
    names = [f"{n}|{m}" for n in parameters for m in MOMENTS] if taken else []
    for key, tensor in tensors_of(folder, OPTIMIZER, ["step", *names]):
        if key != "step":
            name, kind = key.split("|")
            yield name, kind, tensor


def restore_optimizer(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint's AdamW state into ``optimizer``, bit for bit; see ``moments_of``."""
    parameters, step = dict(model.named_parameters()), steps_taken(folder)
    for name, kind, tensor in moments_of(folder, parameters):
        state = optimizer.state[parameters[name]]
        state.setdefault("step", step.clone())
        state[kind] = tensor.clone()


def _quiet() -> None:
    """One bar for each of hundreds of small files says nothing."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def load_model(folder: Path, *, check: bool = True, **kwargs: Any) -> PreTrainedModel:
    """Return the checkpoint's model in eval mode after its files were checked against the manifest."""
    from transformers import AutoModelForCausalLM

    import llm360.model.hf  # noqa: F401  registers our own architectures with the Auto classes

    if check:
        verify(folder)
    _quiet()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **kwargs)
    return model.eval()
