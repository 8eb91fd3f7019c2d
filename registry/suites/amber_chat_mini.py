"""AmberChat at the size of a laptop: amber-mini's last checkpoint after supervised fine-tuning."""

from registry.ids import ArtifactId, Kind
from registry.suite import Phase, Suite

SUITE = Suite(
    name="amber-chat-mini",
    title="amber-mini's last checkpoint after supervised fine-tuning, as AmberChat",
    phases=(Phase(name="sft", first=0, last=0),),
    base=ArtifactId(suite="amber-mini", kind=Kind.CKPT, index=359),
)
