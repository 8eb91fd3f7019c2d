"""Amber at the size of a laptop: the same 360 chunks and checkpoints, built by ``make repro``."""

from registry.suite import Phase, Suite

SUITE = Suite(
    name="amber-mini",
    title="Amber at the size of a laptop: one phase, 360 checkpoints",
    phases=(Phase(name="pretrain", first=0, last=359),),
)
