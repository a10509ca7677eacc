"""Selections that need to know nothing about the clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.core import NOTHING, ONE_MODEL, Round, Shows, part, server_client
from covey.settings import Chance, Count


@dataclass(frozen=True, kw_only=True)
class PerRound:
    """A selection of `per_round` clients."""

    per_round: Count = 10


def drawn_clients(ids: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """`count` of the clients (or all, if fewer), uniformly without replacement, in the order they stand in."""
    places = rng.choice(len(ids), min(count, len(ids)), replace=False)
    return [ids[place] for place in np.sort(places).tolist()]


@part("select", "uniform", shows=NOTHING)
class Uniform(PerRound):
    """`per_round` of the reachable clients, uniformly without replacement."""

    def __call__(self, now: Round) -> list[int]:
        return drawn_clients(now.here, self.per_round, now.stream("select"))


@part("select", "poisson", shows=NOTHING)
class Poisson:
    """Every reachable client by itself, with one probability: how many work is left to chance, and may be none.

    The sampling that amplifies differential privacy most (`[private]`).
    """

    rate: Chance = 0.1

    def __call__(self, now: Round) -> list[int]:
        drawn = now.stream("select").random(len(now.here)) < self.rate
        return [client for client, works in zip(now.here, drawn, strict=True) if works]


@part("select", "everybody", shows=NOTHING)
class Everybody:
    """All reachable clients."""

    def __call__(self, now: Round) -> list[int]:
        return list(now.here)


@part(
    "select",
    "server",
    shows=Shows(
        what="all data: they lie at the server", instead="nothing is federated here: leave [private] out"
    ),
    needs=(ONE_MODEL,),
)
def the_server(now: Round) -> list[int]:  # noqa: ARG001
    """Only the server itself, where (in a simulation) all data lie together."""
    return [server_client(0)]
