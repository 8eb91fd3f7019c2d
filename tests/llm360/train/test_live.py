from __future__ import annotations

import dataclasses
import json

from llm360.train.phase import run_phase
from llm360.train.record import RunFolders


class Seen:
    """A tracker that remembers."""

    def __init__(self):
        self.steps = []

    def log(self, step, numbers):
        self.steps.append((step, numbers["loss"], numbers["grad_norm"]))

    def close(self):
        pass


def test_a_tracker_gets_each_step_as_the_files_have_it(tmp_path, params, start, chunks, alone):
    folders, seen = RunFolders(*[tmp_path / name for name in "cmltw"]), Seen()
    params = dataclasses.replace(params, planted_nan=(1,), on_nonfinite="skip_steps")
    recipe = {"environment": {}}
    given = {"start": start, "chunks": chunks, "folders": folders, "recipe": recipe, "world": alone}
    run_phase(params, **given, trackers=[seen])
    lines = [json.loads(line) for ckpt in range(4) for line in folders.log(ckpt).open()]
    told = [(step, None if loss != loss else loss) for step, loss, _ in seen.steps]
    assert told == [(line["step"], line["loss"]) for line in lines]
    assert [step for step, loss in told if loss is None] == [4]
