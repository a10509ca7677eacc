"""Power-of-choice: of a few random candidates, those with the highest loss work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.core import Round, Task
from covey.errors import UserError
from covey.select.feedback import known_sizes
from covey.steps.evaluate import Evaluate

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PowerOfChoice:
    """`candidates` clients drawn by their data evaluate the model; the `count` with the highest loss work."""

    count: int
    candidates: int = 20

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"per_round is {self.count}; it must be at least 1.")
        if self.candidates < self.count:
            raise UserError(f"candidates is {self.candidates}; it must be at least per_round, {self.count}.")

    def __call__(self, now: Round) -> list[int]:
        known = known_sizes(now)
        sizes = np.array([known.get(i, 0.0) for i in now.here])
        drawn = candidates(
            sizes if sizes.any() else np.ones(len(sizes)), self.candidates, now.stream("select")
        )
        task = Task(models=now.models[:1], slots=(0,))
        asked = {now.here[position]: task for position in drawn}
        replies = [reply for reply in now.fleet.ask(Evaluate(split="train"), asked) if reply.stats]
        if not replies:
            return sorted(asked)[: self.count]
        losses = np.array([float(reply.stats["loss"]) for reply in replies])
        return sorted(replies[position].id for position in highest(losses, self.count))


def candidates(sizes: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Positions of `count` candidates drawn without replacement, by how much data they have."""
    usable = np.flatnonzero(sizes > 0)
    count = min(count, len(usable))
    return [int(i) for i in rng.choice(usable, size=count, replace=False, p=sizes[usable] / sizes.sum())]


def highest(losses: Array, count: int) -> list[int]:
    """Positions of the `count` highest losses; ties go to the lower position."""
    return [int(i) for i in np.argsort(-losses, kind="stable")[:count]]
