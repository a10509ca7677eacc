"""Power-of-choice (Cho et al., 2020): of a few random candidates, those with the highest loss work."""

from dataclasses import replace

import numpy as np

from covey.arrays import Array
from covey.core import EXACT_LOSSES, Method, Round, Send, method, part, to_everybody
from covey.errors import UserError
from covey.methods.baselines import random
from covey.parts.mix.average import Weighting
from covey.parts.selection.plain import PerRound
from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.size import sizes
from covey.parts.steps.train import Train
from covey.settings import Count, inline


@part("select", "power-of-choice", shows=EXACT_LOSSES)
class PowerOfChoice(PerRound):
    """Power-of-choice: of `candidates` clients drawn by their data, those with the highest loss work.

    Args:
        candidates: clients that evaluate the model first.
    """

    send: Send = to_everybody
    candidates: Count = 20

    def __post_init__(self) -> None:
        if self.candidates < self.per_round:
            raise UserError(
                f"candidates is {self.candidates}; allowed: at least per_round, which is {self.per_round}"
            )

    def __call__(self, now: Round) -> list[int]:
        known = sizes(now, now.here)
        held = np.array([float(known.get(i, 0)) for i in now.here])
        drawn = candidates(held if held.any() else np.ones(len(held)), self.candidates, now.stream("select"))
        asked = self.send(now, sorted(now.here[position] for position in drawn))
        replies = [reply for reply in now.fleet.ask(Evaluate(split="train"), asked) if reply.stats]
        if not replies:
            return sorted(asked)[: self.per_round]
        losses = np.array([float(reply.stats["loss"]) for reply in replies])
        return sorted(replies[position].id for position in highest(losses, self.per_round))


def candidates(sizes: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Positions of `count` candidates drawn without replacement, by how much data they have."""
    usable = np.flatnonzero(sizes > 0)
    count = min(count, len(usable))
    return [int(i) for i in rng.choice(usable, size=count, replace=False, p=sizes[usable] / sizes.sum())]


def highest(losses: Array, count: int) -> list[int]:
    """Positions of the `count` highest losses; ties go to the lower position."""
    return [int(i) for i in np.argsort(-losses, kind="stable")[:count]]


@method("power-of-choice", family="selection", paper="https://arxiv.org/abs/2010.01243")
def power_of_choice(
    train: Train, *, select: PowerOfChoice = inline(PowerOfChoice), weighting: Weighting = "equal"
) -> Method:
    """Power-of-choice (Cho et al., 2020): of some candidates drawn by their data, those with the highest loss work.

    The candidates evaluate the present model first, which costs a transfer and time.
    """
    return replace(random(train, weighting=weighting), name="power-of-choice", select=select)
