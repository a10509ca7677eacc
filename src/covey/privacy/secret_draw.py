"""Who participates in a private sum is a secret: against those who know it, sampling amplifies nothing."""

import secrets
from dataclasses import dataclass

import numpy as np

from covey.core import Round, Select, like


@dataclass(frozen=True, kw_only=True)
class SecretDraw:
    """The selection, at real sites by the system's randomness: the run's seed is told to every site."""

    select: Select

    needs, gives = like("select")

    def __call__(self, now: Round) -> list[int]:
        return self.select(now if now.fleet.simulated else UnseededRound(**vars(now)))


class UnseededRound(Round):
    """A round whose streams nobody can repeat."""

    def stream(self, *names: str | int) -> np.random.Generator:  # noqa: ARG002
        return np.random.default_rng(secrets.randbits(128))
