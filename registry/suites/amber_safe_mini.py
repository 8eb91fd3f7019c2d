"""AmberSafe at the size of a laptop: amber-mini's checkpoint 355 after SFT and DPO (paper, footnote)."""

from registry.ids import ArtifactId, Kind
from registry.suite import Phase, Suite

SUITE = Suite(
    name="amber-safe-mini",
    title="amber-mini's checkpoint 355 after SFT and DPO, as AmberSafe",
    phases=(Phase(name="dpo", first=0, last=0),),
    base=ArtifactId(suite="amber-mini", kind=Kind.CKPT, index=355),
)
