"""Compose params.yaml from conf/: ``python -m stages.compose scale=smoke``, as ``dvc exp run -S scale=smoke`` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from llm360.errors import ConfigError, LLM360Error
from llm360.files import write_bytes
from llm360.progress import say
from stages.branches import resolved

CONF = Path(__file__).resolve().parent.parent / "conf"
HEADER = (
    "# Composed from conf/ by `python -m stages.compose{}`. A number may be changed here; composing again, which\n"
    "# `dvc exp run -S` does as well, starts from conf/ and the overrides given then.\n"
)


def compose(overrides: list[str], conf: Path = CONF) -> dict[str, Any]:
    """Return the configuration of ``conf`` with Hydra's overrides applied and its branches resolved.

    Raises ConfigError with Hydra's reason, or what is wrong with a branch.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    try:
        with initialize_config_dir(str(conf), version_base=None):
            config = hydra_compose("config", overrides=overrides)
        params = dict(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"conf/: {reason}; see conf/config.yaml for the groups, e.g. scale=mini") from error
    return params | {"pretrain": resolved(params["pretrain"], params["chunks"])}


def render(overrides: list[str], conf: Path = CONF) -> str:
    """Return the text of params.yaml."""
    words = "".join(f" {o}" for o in overrides)
    return HEADER.format(words) + yaml.safe_dump(compose(overrides, conf), sort_keys=False, width=120)


def main(argv: list[str] | None = None) -> int:
    overrides = sys.argv[1:] if argv is None else argv
    try:
        write_bytes(Path("params.yaml"), render(overrides).encode())
    except LLM360Error as error:
        say(f"error: {error}")
        return 1
    say(f"params.yaml: {' '.join(overrides) or 'default scale'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
