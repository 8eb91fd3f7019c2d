"""CrystalCoder at the size of a laptop: 143 checkpoints in three phases, built by ``make repro``."""

from registry.suite import Phase, Suite

SUITE = Suite(
    name="crystal-mini",
    title="CrystalCoder at the size of a laptop: three phases, 143 checkpoints",
    phases=(  # 345 : 927 : 110 B tokens (paper section 4.2), as 36 : 96 : 11 chunks
        Phase(name="phase1", first=0, last=35),
        Phase(name="phase2", first=36, last=131),
        Phase(name="phase3", first=132, last=142),
    ),
)
