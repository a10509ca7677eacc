"""Selections that need to know nothing about the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey.core.needs import ONE_MODEL, declares
from covey.core.round import Round, server_client
from covey.core.shows import NOTHING, Shows, showing
from covey.settings.ranges import Chance, Count
from covey.settings.registry import register
from covey.settings.signatures import validated


@dataclass(frozen=True, kw_only=True)
class PerRound:
    """A selection of so many clients.

    Args:
        per_round: how many clients work in a round.
    """

    per_round: Count = 10


@register("select part", "uniform")
@validated
@dataclass(frozen=True, kw_only=True)
class Uniform(PerRound):
    """So many of the reachable clients, uniformly without replacement."""

    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> list[int]:
        count = min(self.per_round, len(now.here))
        drawn = now.stream("select").choice(len(now.here), size=count, replace=False)
        return sorted(now.here[position] for position in drawn.tolist())


@register("select part", "poisson")
@validated
@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every reachable client by itself, with one probability: how many work is left to chance, and may be nobody.

    The sampling that amplifies differential privacy most (`[private]`).
    """

    rate: Chance = 0.1

    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> list[int]:
        drawn = now.stream("select").random(len(now.here)) < self.rate
        return [client for client, works in zip(now.here, drawn, strict=True) if works]


@register("select part", "everybody")
@dataclass(frozen=True)
class Everybody:
    """All reachable clients."""

    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> list[int]:
        return list(now.here)


@register("select part", "server")
@showing(
    Shows(what="all data: they lie at the server", instead="nothing is federated here: leave [private] out")
)
@declares(needs=(ONE_MODEL,))
def the_server(now: Round) -> list[int]:  # noqa: ARG001
    """Only the server itself, where (in a simulation) all data lie together."""
    return [server_client(0)]
