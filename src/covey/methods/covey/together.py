"""One model or many, by evidence: groups share a model until their clients' held-out data say that each needs its own.

Clients may look different and still want the same model: digits on a bright and on a dark ground. In every round they
tell how many of the samples that they kept out are right after their own training (`JudgedTrain`); those of the
next round tell how many are right under the average of all. Where kinds contradict each other the average spoils what
each has learnt; where they do not, it is better than what anybody learns alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from covey.core.needs import Facts, Key, declares, gives_of, needs_of
from covey.core.round import Group, Round
from covey.methods.covey.by_portrait import PARENTS
from covey.parts.steps.judged import JUDGEMENTS
from covey.settings.ranges import Count
from covey.settings.signatures import validated

# standard errors by which own training is better than the average of all: each group its own model
PART = 2.0
STAY = -1.5  # by which it is worse, when the rounds of trial are over: one model for good

Decision = Literal["trial", "apart", "together"]
FOUND: Key[dict[int, int]] = Key("flocks as found")
FOUND_PARENTS: Key[list[int]] = Key("the flock that each flock as found came from")
DECISION: Key[Decision] = Key("one model or many")
# of each round: samples, right under the model as received, right after training
EVIDENCE: Key[list[list[float]]] = Key("held-out hits", 'add "evidence" to after')


@validated
@dataclass(frozen=True, kw_only=True)
class Together:
    """The groups that `group` finds, as one until the evidence parts them.

    With own and averaged the shares of held-out samples that are right after a client's training and under the average
    that follows, z = (own - averaged) / standard error. Above PART groups part at once, each with the common model to
    start from; after `rounds` of trial they part unless z is below STAY. More groups than before are a new trial.

    Args:
        group: what finds the groups.
        rounds: of trial, at most.
    """

    group: Group
    rounds: Count = 5

    @property
    def needs(self) -> Facts:
        return (EVIDENCE, *needs_of(self.group))

    @property
    def gives(self) -> Facts:
        return gives_of(self.group)

    def __call__(self, now: Round) -> dict[int, int]:
        decision = DECISION.get(now.memory, "trial")
        if decision == "apart":
            return self.group(now)
        before = dict(FOUND.get(now.memory, {}))
        now.groups = dict(before)
        PARENTS.keep(now.memory, FOUND_PARENTS.get(now.memory, []))
        found = self.group(now)
        FOUND.keep(now.memory, dict(found))
        FOUND_PARENTS.keep(now.memory, PARENTS.of(now.memory))
        if len(set(found.values())) > max(1, len(set(before.values()))):
            EVIDENCE.keep(now.memory, [])
            decision = "trial"
        if decision == "trial" and len(set(found.values())) > 1:
            decision = self.decide(now)
        DECISION.keep(now.memory, decision)
        if decision == "apart":
            PARENTS.keep(now.memory, [0] * (1 + max(found.values())))
            return found
        PARENTS.keep(now.memory, [0])
        return dict.fromkeys(found, 0)

    def decide(self, now: Round) -> Decision:
        """What the evidence so far says."""
        told = EVIDENCE.get(now.memory, [])
        if now.fleet.objective.main != "accuracy":
            return "apart"  # hits cannot be counted
        own, averaged, z = compared(told)
        over = len(told) >= self.rounds
        decision: Decision = "apart" if z > PART or (over and z > STAY) else "together" if over else "trial"
        words = {
            "apart": "so each flock has a model of its own from now on",
            "together": "so all flocks share one model",
            "trial": "so they share one model so far",
        }
        now.notes["one model or many"] = {
            "text": f"After a client's own training {own:.1%} of the samples that it kept out are right, under the "
            f"average of all flocks {averaged:.1%}, a difference of {z:.1f} standard errors: {words[decision]}."
        }
        return decision


def compared(told: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Shares of held-out samples right after own training, and under the averages that followed; the difference in
    standard errors. Nothing is known before the second round."""
    if len(told) < 2:
        return 0.0, 0.0, 0.0
    table = np.array(told)
    own_size, averaged_size = table[:-1, 0].sum(), table[1:, 0].sum()
    if not own_size or not averaged_size:
        return 0.0, 0.0, 0.0
    own, averaged = table[:-1, 2].sum() / own_size, table[1:, 1].sum() / averaged_size
    error = math.sqrt(own * (1 - own) / own_size + averaged * (1 - averaged) / averaged_size)
    return float(own), float(averaged), float((own - averaged) / error) if error else 0.0


@declares(needs=(JUDGEMENTS,), gives=(EVIDENCE,))
def keep_evidence(now: Round) -> None:
    """Counts this round's held-out hits, while the groups are on trial."""
    if DECISION.get(now.memory, "trial") == "trial":
        told = [reply.stats for reply in now.replies if "scores" in reply.stats]
        rows = [float(s["judged"]) * np.array([1.0, s["scores"][0], s["scores"][-1]]) for s in told]
        sums = np.sum(rows, axis=0).tolist() if rows else [0.0, 0.0, 0.0]
        EVIDENCE.keep(now.memory, [*EVIDENCE.get(now.memory, []), sums])
