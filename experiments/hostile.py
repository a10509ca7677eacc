"""A simulated fleet in which some clients lie: what they send is changed after it was made, before the server sees it.

Unlike a poisoned step (`Poisoned`), the liars of a call know each other's answers and everybody else's, so that
they can send what does most harm while it looks like an update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from covey.core import Reply, Task
from covey.data.types import ClientShare, Federation
from covey.fleet.client_data import ClientData
from covey.fleet.local import LocalFleet
from covey.fleet.sample_scores import SampleScores
from covey.fleet.work import Call, Job, Outcome
from covey.parts.portraits.portrait import DescribeClasses

# what all clients of a call send, given the tasks, the liars among them, and what they did
Tell = Callable[[Call, dict[int, Task], Sequence[Outcome]], Sequence[Outcome]]
Attack = Literal["flip", "scale", "alie", "inner-product", "labels", "min-max", "sleeper"]
Portrayal = Literal["imitate", "own", "between"]

SCALE = -9.0  # just below ten times the others' length, and backwards
SIGMAS = 1.5  # ALIE's z (Baruch et al., 2019): so many standard deviations below the mean, in every column
ASLEEP = 20  # rounds in which a sleeper is honest
JUST_UNDER = 1.4  # times the median length: what guard.norm = 1.5 does not shorten
AGAINST = 10.0  # inner-product's epsilon (Xie et al., 2020): so many times the others' mean, backwards


class HostileFleet(LocalFleet):
    """What its clients answer goes through `tell` first."""

    tell: Tell

    @property
    def executor(self) -> Any:
        honest = super().executor

        def work(call: Call, jobs: Sequence[Job]) -> list[Outcome]:
            outcomes = list(honest(call, jobs))
            if isinstance(call.step, SampleScores):  # what the simulation looks up, nobody is asked
                return outcomes
            tasks = {i: task for job in jobs for i, task in zip(job.ids, job.tasks, strict=True)}
            return list(self.tell(call, tasks, outcomes))

        return work

    def child(self, *args: Any) -> LocalFleet:
        return hostile(super().child(*args), self.tell)


def hostile(fleet: LocalFleet, tell: Tell) -> HostileFleet:
    """The same fleet, whose clients say what `tell` makes of their answers."""
    fleet.__class__ = HostileFleet
    assert isinstance(fleet, HostileFleet)
    fleet.tell = tell
    return fleet


def attacked(
    fleet: LocalFleet, liars: Sequence[int], attack: Attack | None, portrait: Portrayal | None = None
) -> LocalFleet:
    """The fleet with these clients attacking every training, and describing their classes falsely.

    flip, scale: their own update times -1, -9. alie: the mean of all updates of their model less 1.5 standard
    deviations in every column. inner-product: -10 times the mean of the others' updates. labels: they train on labels
    counted from the other end. min-max: the others' mean, moved back along itself as far as no other update is farther
    from it than two of them are from each other (Shejwalkar and Houmansadr, 2021). sleeper: honest for 20 rounds, then
    the others' mean backwards, just under the length that would be shortened. imitate: they describe themselves as a
    client of another cluster does; own: all as one and as nobody else, every bit flipped; between: half of the bits
    from either of two clients of different clusters.
    """
    if attack == "labels":
        fleet.data = with_false_labels(fleet.data, liars)
        fleet.client_data = ClientData(fleet.data, fleet.devices)
    clusters = [share.cluster for share in fleet.data.shares]
    return hostile(fleet, partial(lies, frozenset(liars), attack, portrait, clusters))


def lies(
    liars: frozenset[int],
    attack: Attack | None,
    portrait: Portrayal | None,
    clusters: Sequence[int],
    call: Call,
    tasks: dict[int, Task],
    outcomes: Sequence[Outcome],
) -> list[Outcome]:
    """The outcomes of a call with the liars' answers in place of what they did."""
    there = {o.id: o.reply for o in outcomes if o.reply is not None}
    told: dict[int, Reply] = {}
    asleep = attack == "sleeper" and call.round <= ASLEEP
    if attack not in (None, "labels") and not asleep and call.step.kind.startswith("train."):
        told = false_updates(there, tasks, liars, attack)
    elif portrait is not None and isinstance(call.step, DescribeClasses):
        told = false_portraits(there, liars, portrait, clusters)
    return [replace(o, reply=told[o.id]) if o.id in told else o for o in outcomes]


def false_updates(
    there: dict[int, Reply], tasks: dict[int, Task], liars: frozenset[int], attack: Attack | None
) -> dict[int, Reply]:
    """What the liars send in place of their trained rows."""
    rows = {i: reply.vector for i, reply in there.items() if i >= 0 and reply.vector is not None}
    starts = {i: tasks[i].models[tasks[i].slots.index(there[i].slot)] for i in rows}
    found = {}
    for i in sorted(liars & rows.keys()):
        own = rows[i] - starts[i]
        if attack in ("flip", "scale"):
            update = own * (-1.0 if attack == "flip" else SCALE)
        else:
            update = together(
                [rows[j] - starts[j] for j in rows if j not in liars and there[j].slot == there[i].slot]
                or [rows[j] - starts[j] for j in rows if j not in liars]
                or [own],
                attack,
            )
        found[i] = replace(there[i], vector=starts[i] + update)
    return found


def together(honest: Sequence[Tensor], attack: Attack | None) -> Tensor:
    """The update that all liars send, made of the honest ones of the same model."""
    stacked = torch.stack(list(honest)).double()
    mean = stacked.mean(dim=0)
    if attack == "inner-product":
        return (-AGAINST * mean).float()
    back: Tensor = -mean / mean.norm().clamp_min(1e-12)
    if attack == "sleeper":
        return back.mul(JUST_UNDER * float(stacked.norm(dim=1).median())).float()
    if attack == "min-max":
        return back.mul(farthest(stacked - mean, back)).add(mean).float()
    return (mean - SIGMAS * stacked.std(dim=0, correction=0)).float()


def farthest(deviations: Tensor, way: Tensor) -> float:
    """The largest g with |g way - d| at most the largest distance of two deviations d, for each d; `way` has length 1.

    |g way - d|^2 = g^2 - 2 g (way d) + |d|^2, of which the larger root is taken.
    """
    most = torch.cdist(deviations, deviations).max() ** 2
    along = deviations @ way
    roots = along + (along**2 + most - (deviations**2).sum(dim=1)).clamp_min(0).sqrt()
    return float(roots.min())


def false_portraits(
    there: dict[int, Reply], liars: frozenset[int], portrait: Portrayal, clusters: Sequence[int]
) -> dict[int, Reply]:
    """How the liars describe their classes."""
    honest = sorted(there.keys() - liars)
    found = {}
    for i in sorted(liars & there.keys()):
        others = [j for j in honest if clusters[j] != clusters[i]] or honest
        like = [j for j in honest if clusters[j] == clusters[i]] or honest
        if not others:
            continue
        model, second = there[others[i % len(others)]].stats, there[like[i % len(like)]].stats
        bits = np.array(model["bits"])
        if portrait == "own":
            bits = ~np.array(there[honest[0]].stats["bits"])
        elif portrait == "between":
            bits[::2] = np.asarray(second["bits"])[::2]
        stats = {**there[i].stats, "counts": model["counts"], "views": model["views"], "bits": bits}
        found[i] = replace(there[i], stats=stats)
    return found


def with_false_labels(data: Federation, liars: Sequence[int]) -> Federation:
    """The clients' data, of which the liars' training labels y are C - 1 - y."""
    last, shares = len(data.dataset.classes) - 1, list(data.shares)
    for i in liars:
        one = shares[i]
        before = one.train.shift.permutation or range(last + 1)
        permutation = tuple(last - label for label in before)
        train = one.train.shifted(replace(one.train.shift, permutation=permutation))
        shares[i] = ClientShare(train, one.test, one.cluster, one.name)
    return replace(data, shares=tuple(shares))


@dataclass(frozen=True, kw_only=True)
class Liars:
    """Who lies: a share of all clients, drawn by a seed of its own."""

    share: float
    seed: int

    def among(self, clients: int) -> tuple[int, ...]:
        """Their ids; at least one."""
        count = max(1, round(self.share * clients))
        rng = np.random.default_rng([self.seed, 38])
        return tuple(sorted(int(i) for i in rng.choice(clients, size=count, replace=False)))
