"""What must fit together before a phase takes its first step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm360.checkpoint import TrainState
from llm360.data.chunks import ChunkReader
from llm360.errors import ConfigError, DataError
from llm360.files import read_json, read_manifest
from llm360.train.params import PhaseParams

if TYPE_CHECKING:
    from llm360.train.distributed import World


def check_inputs(params: PhaseParams, *, start: Path, chunks: ChunkReader, world: World) -> None:
    """Raise ConfigError or DataError when the start, the chunks and the ranks are not those of one run."""
    world.rows(params.batch_size)
    manifest = read_manifest(start)
    _check_start(params, start, manifest)
    _check_chunks(params, chunks)
    _check_rows(start, manifest, chunks)
    _check_numbers(start, chunks)


def _check_start(params: PhaseParams, start: Path, manifest: dict[str, Any]) -> None:
    named = f"{manifest['suite']}/ckpt-{manifest.get('ckpt')}"
    if manifest["suite"] != params.suite and named != params.branch:
        raise ConfigError(
            f"{start}: a checkpoint of {named}, expected one of {params.suite}; to begin a new suite there say "
            f"branch_from: {named.replace('/ckpt-', '@')}"
        )
    if (manifest["dtype"], manifest["optimizer"]) != ("float32", True):
        raise ConfigError(
            f"{start}: its weights are {manifest['dtype']} and its optimizer state is "
            f"{'there' if manifest['optimizer'] else 'missing'}; expected float32 weights with the state: "
            f"start from a checkpoint of pretraining"
        )


def _check_chunks(params: PhaseParams, chunks: ChunkReader) -> None:
    found = (chunks.manifest["suite"], chunks.manifest["phase"])
    if found != (params.suite, params.phase):
        raise ConfigError(
            f"{chunks.folder}: chunks of {found[0]}, phase {found[1]}, expected {params.suite}, phase {params.phase}; "
            f"give this phase its own chunks"
        )


def _check_rows(start: Path, manifest: dict[str, Any], chunks: ChunkReader) -> None:
    """The tokens must be those of the model's own tokenizer, in rows of the length that it was built for."""
    mine, theirs = manifest["tokenizer_sha256"], chunks.manifest["tokenizer_sha256"]
    if mine != theirs:
        raise DataError(
            f"{chunks.folder}: made with the tokenizer {theirs[:12]}, but {start} was built with {mine[:12]}; "
            f"tokenize again with the suite's tokenizer, or build the first weights anew"
        )
    config = read_json(start / "config.json")
    length = config.get("max_position_embeddings", config.get("n_positions"))
    if length != chunks.manifest["sequence_length"]:
        raise DataError(
            f"{chunks.folder}: rows of {chunks.manifest['sequence_length']} tokens, but the model of {start} was "
            f"built for {length}; make sequence_length the same in chunks and models"
        )


def _check_numbers(start: Path, chunks: ChunkReader) -> None:
    state, first = TrainState.read(start), chunks.manifest["first_chunk"]
    if state.position or state.chunks_seen != first:
        where = f", {state.position} steps into the next" if state.position else ""
        raise ConfigError(
            f"{chunks.folder}: begins with chunk {first}, but {start} has finished {state.chunks_seen} chunks{where}; "
            f"start from checkpoint {first - 1}, or make first_chunk {state.chunks_seen}"
        )
