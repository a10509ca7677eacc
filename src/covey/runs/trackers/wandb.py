"""Weights & Biases, offline unless its own settings say otherwise."""

import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from covey.errors import importing
from covey.files import write_atomically
from covey.folder.flat import flat
from covey.runs.tracking import TrackedRun
from covey.settings.registry import register
from covey.settings.signatures import validated

KEPT = "wandb-id.txt"  # in the run folder


@register("tracker", "wandb")
@validated
class WandB:
    """A run of W&B; offline ones lie in wandb/ of the run folder, and `wandb sync` sends them.

    Args:
        project: what the runs belong to.
        mode: offline, or online, which sends every number to W&B.
    """

    def __init__(self, *, project: str = "covey", mode: Literal["offline", "online"] = "offline") -> None:
        self.project = project
        self.mode = mode
        self.run: Any = None

    def begin(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with importing("tracker wandb needs a package: pip install 'covey[wandb]'"):
            import wandb
        kept = run.folder / KEPT
        known = kept.read_text(encoding="utf-8").strip() if run.round and kept.exists() else None
        self.run = wandb.init(
            project=self.project,
            name=run.name,
            dir=str(run.folder),
            config=flat(run.settings),
            mode=self.mode,
            id=known,
            resume="allow" if known else None,
            settings=wandb.Settings(
                console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True
            ),
        )
        write_atomically(kept, self.run.id)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self.run.log({name: value for name, value in values.items() if math.isfinite(value)}, step=number)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.run.finish(exit_code=0 if summary.get("finished") else 1)
