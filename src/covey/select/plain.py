"""Selections that need to know nothing about the clients."""

from __future__ import annotations

from dataclasses import dataclass

from covey.core import Round, server_client
from covey.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """So many of the reachable clients, uniformly without replacement."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"method.per_round is {self.count}; it must be at least 1")

    def __call__(self, now: Round) -> list[int]:
        count = min(self.count, len(now.here))
        drawn = now.stream("select").choice(now.here, size=count, replace=False)
        return sorted(int(i) for i in drawn)


@dataclass(frozen=True)
class Everybody:
    """All reachable clients."""

    def __call__(self, now: Round) -> list[int]:
        return list(now.here)


def the_server(now: Round) -> list[int]:  # noqa: ARG001
    """Only the server itself, where (in a simulation) all data lie together."""
    return [server_client(0)]
