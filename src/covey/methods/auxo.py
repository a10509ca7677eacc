"""Auxo: efficient federated learning via scalable client clustering (Liu et al., SoCC 2023)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import GROUPS, MODEL_PER_GROUP, Fact, Key, Method, Reply, Round, Shows, method, part
from covey.core.shows import ANY_GROUPS, NOTHING
from covey.parts.banks import one_per_parent, to_group
from covey.parts.mix.average import Average
from covey.parts.selection.clusters import EveryCluster
from covey.parts.steps.train import Train
from covey.settings import Count, Range, Share, inline

T = TypeVar("T")

REWARDS: Key[dict[int, dict[int, float]]] = Key("auxo.rewards")  # cohort -> client -> how well it fits there
SIDES: Key[dict[int, dict[int, int]]] = Key("auxo.sides")  # cohort -> client -> the half it is in, 0 or 1
PARENTS: Key[list[int]] = Key("auxo.parents")  # of each cohort the one that it was cut from
KEPT_REWARDS = Fact("rewards that somebody keeps", 'add "rewards" to after')
COHORTS = Fact("groups by rewards", 'set group = "rewards"')
FEWEST = 3  # replies of a cohort from which they are compared
SHOWS_LIKENESS = Shows(what="single updates, whose likeness moves clients among cohorts", instead=ANY_GROUPS)


def rewards(updates: Array) -> Array:
    """1 - d / (mean of d + deviation of d), d the distance of an update from the mean of all: far-off clients lose."""
    distance = np.linalg.norm(updates - updates.mean(axis=0), axis=1)
    usual = distance.mean() + distance.std()
    return np.asarray(1 - distance / usual) if usual > 0 else np.ones(len(updates))


def halves(updates: Array, known: Sequence[int | None], seed: int) -> list[int]:
    """The half that every update is in: by 2-means at first; later an unknown client joins its nearest known one.

    Updates are compared by their directions from the mean of all.
    """
    from sklearn.cluster import KMeans

    apart = updates - updates.mean(axis=0)
    ways = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
    told = [place for place, side in enumerate(known) if side is not None]
    if len({known[place] for place in told}) < 2:
        if len(np.unique(ways.round(9), axis=0)) < 2:
            return [0] * len(ways)
        found = KMeans(2, n_init=10, random_state=seed).fit_predict(ways)
        first = known[told[0]] if told else 0
        same = found == found[told[0] if told else 0]
        return [int(first or 0) if here else 1 - int(first or 0) for here in same]
    nearest = [told[int(np.argmin(np.linalg.norm(ways[told] - way, axis=1)))] for way in ways]
    return [int(known[at] or 0) for at in nearest]


@part(
    "group", "rewards", needs=(KEPT_REWARDS, MODEL_PER_GROUP), gives=(GROUPS, COHORTS), shows=SHOWS_LIKENESS
)
class ByRewards:
    """Every client is in the cohort that rewarded it most; a client without any reward yet is in a random one (Auxo).

    Args:
        explore: share of the clients that try a cohort at random, halved every ten rounds.
    """

    explore: Share = 0.1

    def __call__(self, now: Round) -> dict[int, int]:
        table, cohorts = REWARDS.get(now.memory, {}), len(PARENTS.get(now.memory, [0]))
        luck = now.stream("explore")
        draws, tries = luck.random(len(now.seen)), luck.integers(cohorts, size=len(now.seen))
        still = self.explore * 0.5 ** (now.number / 10)
        found = {}
        for place, client in enumerate(now.seen):
            own = [table.get(cohort, {}).get(client, 0.0) for cohort in range(cohorts)]
            lost = not any(own) or draws[place] < still
            found[client] = int(tries[place]) if lost else int(np.argmax(own))
        return found


@part("bank", "per-cohort", shows=NOTHING, needs=(COHORTS,), gives=(MODEL_PER_GROUP,))
def one_per_cohort(now: Round) -> Tensor:
    """A model for every cohort; one that was cut off starts from the model of the cohort that it was in."""
    return one_per_parent(now, PARENTS.get(now.memory, [0]))


@part("after", "rewards", needs=(COHORTS,), gives=(KEPT_REWARDS,), shows=SHOWS_LIKENESS)
class RememberRewards:
    """Rewards the clients of every cohort and cuts a cohort in two when enough of its clients are on each side (Auxo).

    Args:
        most: cohorts in the end, at most.
        known: share of a cohort's clients whose half must be known before it is cut.
        smallest: clients that each half must have, as a share of the cohort's.
    """

    most: Count = 4
    known: Share = 0.6
    smallest: Annotated[float, Range(least=0, most=0.5)] = 0.2

    def __call__(self, now: Round) -> None:
        table, sides = copied(REWARDS.get(now.memory, {})), copied(SIDES.get(now.memory, {}))
        parents = list(PARENTS.get(now.memory, [0]))
        for cohort in range(len(parents)):
            replies = [r for r in now.replies if r.slot == cohort and r.vector is not None]
            if len(replies) < FEWEST:
                continue
            own, half = table.setdefault(cohort, {}), sides.setdefault(cohort, {})
            updates, ids = moves(now, replies), [r.id for r in replies]
            for client, reward in zip(ids, rewards(updates), strict=True):
                own[client] = own.get(client, 0.0) + float(reward)
            seed = int(now.stream("halves", cohort).integers(2**31))
            half |= zip(ids, halves(updates, [half.get(i) for i in ids], seed), strict=True)
            members = [client for client, group in now.groups.items() if group == cohort]
            if len(parents) < self.most and self.ripe(half, members):
                table[cohort], table[len(parents)] = (
                    {client: reward + 1 for client, reward in own.items() if half.get(client) == side}
                    for side in (0, 1)
                )
                parents.append(cohort)
                sides[cohort] = {}
        REWARDS.keep(now.memory, table)
        SIDES.keep(now.memory, sides)
        PARENTS.keep(now.memory, parents)

    def ripe(self, half: Mapping[int, int], members: Sequence[int]) -> bool:
        """Whether enough members are known, and enough of them on each side."""
        told = [half[client] for client in members if client in half]
        least = min(sum(told), len(told) - sum(told))
        return len(told) >= self.known * len(members) and least >= max(2, self.smallest * len(members))


def copied(tables: Mapping[int, Mapping[int, T]]) -> dict[int, dict[int, T]]:
    """A copy of what is kept of every cohort, to write to."""
    return {cohort: dict(table) for cohort, table in tables.items()}


def moves(now: Round, replies: Sequence[Reply]) -> Array:
    """How far every reply went from the model that was sent, in its trained numbers."""
    rows = [r.vector - now.start_of(r) for r in replies if r.vector is not None]
    return torch.stack(rows)[:, : now.fleet.layout.trainable].double().numpy()


@method("auxo", family="clusters", paper="https://arxiv.org/abs/2210.16656")
def auxo(
    train: Train,
    *,
    per_round: Count = 10,
    group: ByRewards = inline(ByRewards),
    after: RememberRewards = inline(RememberRewards),
) -> Method:
    """One cohort is cut in two again and again, by the directions of the updates that arrive anyway.

    In every round the clients of a cohort are rewarded for being near its mean update, 1 - d / (mean d + deviation of
    d), and told apart by 2-means of their updates' directions; when 60 % of a cohort are known and each half has a
    fifth, the halves part, each with the model so far. A client works where its rewards are highest, and cohorts share
    a round's clients equally (Liu et al., 2023). The number of cohorts is bounded here; the authors' code bounds
    their size instead, which takes hundreds of clients.
    """
    return Method(
        name="auxo",
        group=group,
        bank=one_per_cohort,
        select=EveryCluster(per_round=per_round),
        send=to_group,
        local=train,
        mix=Average(),
        after=(after,),
    )
