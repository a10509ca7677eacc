"""A fair schedule of HACCS' clusters: quick rounds most of the time, and everybody's data in the end.

HACCS as published lets the fastest device of a cluster work, so the others' data are never seen, and draws clusters one
by one, so most rounds wait for a slow one. Here a round is chosen as a whole: a deadline, and who fits into it. The
functions work on arrays; a cluster is an array of positions, latencies are in seconds, ages in rounds.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappush, heapreplace
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Literal

import numpy as np

from covey.arrays import Array, Integers
from covey.core import KNOWN_GROUPS, Facts, Key, Round, by_losses, part
from covey.parts.selection.feedback import ByLosses
from covey.parts.selection.haccs import device_losses, members_of, with_singles
from covey.parts.selection.plain import drawn_clients
from covey.settings import UpTo100

POOL = 5000  # devices that are looked at: in a larger fleet a sample of this many, a new one in each round
LAST_CHOSEN: Key[dict[int, int]] = Key("last chosen")  # client -> round


@part("select", "fair")
class FairSchedule(ByLosses):
    """HACCS' clusters in fair rounds: quick ones most of the time, and everybody's data in the end.

    A round is the deadline T with the largest worth(T)^fullness / T, and the devices that make it up.

    Args:
        power: fair: exponent of a cluster's loss in its worth.
        rotation: fair: weight of a device's own age against its cluster's.
        fullness: fair: how much more a round's worth counts than its time; 1 takes many quick rounds.
        hurry: fair: whether quick rounds are preferred always, or only where devices differ (a profile, real sites).
    """

    power: UpTo100 = 0.5
    rotation: UpTo100 = 0.5
    fullness: UpTo100 = 1.25
    hurry: Literal["always", "timed"] = "always"

    anyway: ClassVar[Facts] = (KNOWN_GROUPS,)

    shows = property(by_losses)

    def __call__(self, now: Round) -> list[int]:
        now = replace(now, here=pool(now))
        here, groups, last = now.here, with_singles(now), LAST_CHOSEN.get(now.memory, {})
        seconds = now.fleet.seconds(self.step, here)
        hurries = self.hurry == "always" or now.fleet.timed
        latency = np.array([seconds[i] if hurries else 1.0 for i in here])
        loss = np.array(device_losses(here, groups, self.known(now)))
        names, clusters = members_of(np.array([groups[i] for i in here], np.int64))
        age = np.array([float(now.number - last.get(i, 0)) for i in here])
        weight = cluster_worth(clusters, np.array([loss[members].mean() for members in clusters]), self.power)
        chosen, deadline = best_round(
            clusters,
            weight,
            age,
            latency,
            count=self.per_round,
            rotation=self.rotation,
            fullness=self.fullness,
        )
        LAST_CHOSEN.keep(now.memory, last | {here[position]: now.number for position in chosen})
        now.notes["schedule"] = {
            "cluster": names,
            "reachable": [len(members) for members in clusters],
            "chosen": [int(np.isin(members, chosen).sum()) for members in clusters],
            "age": [float(age[members].min()) for members in clusters],
            "worth": np.round(weight, 4).tolist(),
            "deadline": [round(deadline, 4)] * len(names),
        }
        return sorted(here[position] for position in chosen)


def pool(now: Round) -> Sequence[int]:
    """Whom a round is chosen from: everybody who is here, or `POOL` of them drawn at random where they are more."""
    return now.here if len(now.here) <= POOL else drawn_clients(now.here, POOL, now.stream("schedule pool"))


def cluster_worth(clusters: Sequence[Integers], loss: Array, power: float) -> Array:
    """W_c = n_c loss_c^p: large clusters and those learned badly count more."""
    sizes = np.array([float(len(members)) for members in clusters])
    return np.asarray(sizes * np.maximum(loss, 1e-12) ** power)


def best_round(
    clusters: Sequence[Integers],
    weight: Array,
    age: Array,
    latency: Array,
    *,
    count: int,
    rotation: UpTo100,
    fullness: UpTo100,
) -> tuple[list[int], float]:
    """Over all deadlines, the round with the largest worth^fullness / time; its devices and how long it takes.

    The worth of a round is the sum of its devices' (see `Places`), with places filled as far as the deadline lets them.
    Devices enter from the quickest on, and those that no deadline gives a place are not looked at.
    """
    places = RoundPlaces(count=count)
    entering: list[tuple[float, int, int]] = []
    for cluster, members in enumerate(clusters):
        entering += [(float(latency[d]), d, cluster) for d in in_reach(members, age, latency, count)]
    shares = [
        (float(whole * age[members].min()), float(rotation * whole), len(members))
        for members, whole in zip(clusters, weight, strict=True)
    ]
    best: tuple[float, list[int], float] = (-1.0, [], 0.0)
    for _, together in groupby(sorted(entering), key=itemgetter(0)):
        for seconds, device, cluster in together:
            places.enter(device, float(age[device]), seconds, cluster, shares[cluster])
        chosen, worth = places.first()
        time = float(latency[chosen].max())
        value = worth**fullness / max(time, 1e-12)
        if value > best[0] * (1 + 1e-12):
            best = (value, chosen, time)
    return best[1], best[2]


def in_reach(members: Integers, age: Array, latency: Array, count: int) -> list[int]:
    """The devices of a cluster that a deadline can give a place: fewer than `count` are both as quick and as old."""
    quickest_first = members[np.lexsort((members, latency[members]))]
    oldest, ages = float(age[members].max()), age[quickest_first]
    found: list[int] = []
    eldest: list[float] = []  # a heap of the `count` greatest ages so far
    for device, its_age in zip(quickest_first.tolist(), ages.tolist(), strict=True):
        if len(eldest) < count:
            heappush(eldest, its_age)
        elif its_age > eldest[0]:
            heapreplace(eldest, its_age)
        else:
            if eldest[0] == oldest:
                break  # nobody after it is older
            continue
        found.append(device)
    return found


@dataclass(kw_only=True)
class RoundPlaces:
    """The places of a round: of the devices that have entered, the `count` most worthy.

    The (m + 1)-th device d of cluster c is worth W_c age_c / (2m + 1) + rotation W_c age_d / n_c: the first of a
    cluster brings its kind of data (age_c: rounds since any of it worked), each further one less, and any device its
    own (age_d). Divisors 1, 3, 5, ... divide the places in proportion to the clusters' worth (Sainte-Lague).
    """

    count: int
    # of each cluster the oldest devices, then the quickest: (-age, latency, device)
    waiting: dict[int, list[tuple[float, float, int]]] = field(default_factory=dict)
    worths: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # the same as (-worth, device)
    options: list[tuple[float, int]] = field(default_factory=list)  # those of all clusters, in order

    def enter(
        self, device: int, age: float, latency: float, cluster: int, share: tuple[float, float, int]
    ) -> None:
        """A device can make it; `share` is W_c age_c, rotation W_c and n_c of its cluster."""
        waiting = self.waiting.setdefault(cluster, [])
        insort(waiting, (-age, latency, device))
        del waiting[self.count :]
        for option in self.worths.get(cluster, ()):
            del self.options[bisect_left(self.options, option)]
        whole, of_each, members = share
        self.worths[cluster] = [
            (-(whole / (2 * taken + 1) + of_each * -years / members), d)
            for taken, (years, _, d) in enumerate(waiting)
        ]
        for option in self.worths[cluster]:
            insort(self.options, option)

    def first(self) -> tuple[list[int], float]:
        """Who has a place, the most worthy first, and what they are worth together."""
        chosen = self.options[: self.count]
        return [device for _, device in chosen], float(sum(-worth for worth, _ in chosen))
