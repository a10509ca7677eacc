"""TensorBoard: every number as a scalar, by rounds."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.errors import importing
from covey.folder.flat import flat
from covey.runs.tracking import TrackedRun
from covey.settings.registry import register


@register("tracker", "tensorboard")
class TensorBoard:
    """Event files that `tensorboard --logdir runs` shows.

    Args:
        folder: where they are written, one folder per run; empty: tensorboard/ in the run folder.
    """

    def __init__(self, *, folder: str = "") -> None:
        self.folder = folder
        self.writer: Any = None

    def begin(self, run: TrackedRun) -> None:
        with importing("tracker tensorboard needs a package: pip install 'covey[tensorboard]'"):
            from torch.utils.tensorboard import SummaryWriter
        place = Path(self.folder) / run.folder.name if self.folder else run.folder / "tensorboard"
        if not run.round:
            shutil.rmtree(place, ignore_errors=True)  # of an earlier telling of the same run
        # What came after the checkpoint that a run resumes from never happened.
        self.writer = SummaryWriter(log_dir=str(place), purge_step=run.round + 1 if run.round else None)
        if not run.round:
            settings = "\n".join(
                f"    {name} = {json.dumps(value)}" for name, value in flat(run.settings).items()
            )
            self.writer.add_text("configuration", settings, 0)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self.writer.add_scalar(name, value, number)
        self.writer.flush()

    def end(self, summary: Mapping[str, Any]) -> None:  # noqa: ARG002
        self.writer.close()
