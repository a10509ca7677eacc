"""Noise that later noise takes back in part: DP-FTRL by banded matrix factorisation (Choquette-Choo et al., 2023).

    C = lower triangular, Toeplitz, b bands: the first b coefficients of (1 - x)^(-1/2), of length 1 together
    told in round t: s_t + x_t, x = C^-1 Z, Z independent Gaussian noise of z clip lengths

So C (s + x) = C s + Z: a client that is in sums at least b rounds apart moves columns of C that have no row in common,
each of length 1, and pays for one Gaussian mechanism of noise z each time it is drawn. The models, which are sums over
the rounds, have less noise, because x_t holds part of earlier noise with the other sign.

Clients are in b cohorts, by their number, which no data decide. Cohort t mod b is drawn from in round t, each of its
clients with b times the chance: T rounds are T / b sums for a client, amplified by Poisson sampling (their Theorem 4).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import NOTHING, Key, Round, Shows
from covey.settings import Chance, Count


def coefficients(bands: int) -> Array:
    """The first `bands` coefficients of (1 - x)^(-1/2), binom(2k, k) / 4^k, divided by their length."""
    found = np.array([math.comb(2 * k, k) / 4.0**k for k in range(bands)])
    return np.asarray(found / np.linalg.norm(found))


def correlated(now: Round, fresh: Tensor, model: int, bands: int) -> Tensor:
    """x_t = (Z_t - sum over j of c_j x_(t-j)) / c_0 of one model, and remembers it; `fresh` is Z_t."""
    weights = coefficients(bands)
    earlier: Key[Tensor] = Key(f"private.earlier noise {model}")  # x of the last b - 1 rounds
    kept = earlier.get(now.memory, torch.zeros(0, len(fresh), dtype=torch.float64))
    noise = fresh.double().clone()
    for back, before in enumerate(reversed(kept.unbind(0)), start=1):
        noise.sub_(before, alpha=float(weights[back]))
    noise.div_(float(weights[0]))
    earlier.keep(now.memory, torch.cat([kept, noise[None]])[1 - bands :])
    return noise


@dataclass(frozen=True, kw_only=True)
class InTurn:
    """Of one cohort after the other, each client by itself with one probability."""

    rate: Chance = 1.0
    bands: Count = 1

    shows: ClassVar[Shows] = NOTHING

    def turn(self, number: int, clients: Iterable[int]) -> list[int]:
        """Whose turn it is in this round."""
        return [client for client in clients if client % self.bands == (number - 1) % self.bands]

    def __call__(self, now: Round) -> list[int]:
        turn = self.turn(now.number, now.here)
        drawn = now.stream("select").random(len(turn)) < self.rate
        return [client for client, works in zip(turn, drawn, strict=True) if works]
