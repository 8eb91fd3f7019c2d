"""What ``registry.checkpoint`` returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.checkpoint import OPTIMIZER, STATE, TrainState, load_model, load_tokenizer
from llm360.errors import ConfigError, NotReleased, StoreUnavailable, did_you_mean
from registry.ids import ArtifactId, Kind
from registry.store import Artifact, Store
from registry.suite import Suite
from registry.workspace import verify_files

if TYPE_CHECKING:
    import polars as pl
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

DTYPES = ("float32", "bfloat16", "float16", "float64")
WEIGHTS = (".safetensors", ".bin")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint, resolved. Its files are read on demand and checked against their sha256 first."""

    id: ArtifactId
    artifact: Artifact
    facts: Suite
    store: Store

    @property
    def suite(self) -> str:
        """The suite's name."""
        return self.facts.name

    @property
    def ckpt(self) -> int:
        """Index in the suite."""
        return self.id.index or 0

    @property
    def phase(self) -> str:
        """The phase that it was saved in."""
        return self.facts.phase_of(self.ckpt).name

    @property
    def path(self) -> Path:
        """Its local folder; from the Hub, downloaded when it is not cached."""
        return self.store.folder(self.artifact)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Its manifest's fields: totals, lineage, fingerprint, environment."""
        return self.artifact.manifest

    @property
    def step(self) -> int:
        """Optimizer steps taken, over the whole suite."""
        return int(self.manifest["step"])

    @property
    def tokens_seen(self) -> int:
        """Tokens trained on, over the whole suite."""
        return int(self.manifest["tokens_seen"])

    def model(self, *, dtype: torch.dtype | str | None = None) -> PreTrainedModel:
        """Return the model in eval mode, fp32 unless ``dtype`` says otherwise, after every file was checked.

        Raises IntegrityError naming the file, StoreUnavailable when the Hub is needed and cannot be reached.
        """
        folder = self._checked()
        kind = _dtype(dtype)
        try:
            return load_model(folder, check=False, dtype=kind, weights_only=True, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise StoreUnavailable(
                f"{self.id}: its files do not make a model without its own code ({str(error).splitlines()[0]}); "
                f"pull it again, or use a suite that transformers knows"
            ) from error

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer that was saved with it."""
        names = tuple(e.path for e in self.artifact.files if not e.path.endswith(WEIGHTS))
        return load_tokenizer(self._checked(*names))

    def optimizer(self) -> dict[str, torch.Tensor]:
        """Return AdamW's state as flat tensors: ``<parameter>|exp_avg``, ``<parameter>|exp_avg_sq``, ``step``; fp32.

        Raises NotReleased where the suite saved none.
        """
        folder = self._require(OPTIMIZER, Kind.OPTIMIZER)
        from safetensors.torch import load_file

        return load_file(folder / OPTIMIZER)

    def state(self) -> TrainState:
        """Return where the run stood: steps, tokens, chunks, random state; raises NotReleased where none was saved."""
        return TrainState.read(self._require(STATE, Kind.CKPT))

    def chunks_seen(self) -> list[int]:
        """Return the chunks whose tokens it was trained on, in order: see ``Suite.chunks_seen``."""
        return self.facts.chunks_seen(self.ckpt)

    def metrics(self) -> pl.DataFrame:
        """Return the training log up to this checkpoint, one row per optimizer step."""
        from registry.metrics import read_metrics

        return read_metrics(self.facts, ckpt=self.ckpt)

    def _require(self, name: str, kind: Kind) -> Path:
        self.facts.require(dataclasses.replace(self.id, kind=kind))
        if name not in {e.path for e in self.artifact.files}:
            raise NotReleased(f"{self.id}: no {name} was saved with it (source: its manifest)")
        return self._checked(name)

    def _checked(self, *names: str) -> Path:
        folder = self.path
        verify_files(folder, self.artifact, names)
        return folder


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    import torch

    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(
            f"dtype: read {dtype!r}, expected a floating torch.dtype or its name; {did_you_mean(name, DTYPES)}"
        )
    found: torch.dtype = getattr(torch, name)
    return found
