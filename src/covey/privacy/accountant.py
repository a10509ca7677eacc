"""How much privacy noisy sums cost, and how much noise a budget needs: all numbers are `dp-accounting`'s.

Amplification by sampling is only claimed where chance alone decides who participates: Poisson sampling (each client by
itself, with one probability) and a fixed number of all, uniformly. Each has its own neighbours:

    zero-out      one client's data are there or not (its update counts or is zero): Poisson, and no sampling at all
    replace-one   one client's data are others, and how many clients there are is known: fixed-size sampling

A replaced client changes a sum by up to twice the clip length, so fixed-size sampling is accounted with half the noise.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from covey.errors import UserError, importing

Accountant = Literal["pld", "rdp"]
Relation = Literal["zero-out", "replace-one"]

LEAST_NOISE = 0.2  # clip lengths of noise below which nobody is protected by a single sum
LITTLE = 1e-6  # of a budget: what is left of it by rounding is nothing
GRID = 1e-3  # of privacy losses; dp-accounting rounds them up, so that a coarser one is never too good


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How clients come into a sum.

    kind: `poisson`, each by itself with probability `rate`; `fixed`, `chosen` of `of`, uniformly; `none`, in any other
    way, data-dependent ones included, which protects nobody by itself.
    """

    kind: Literal["none", "poisson", "fixed"] = "none"
    rate: float = 1.0
    chosen: int = 0
    of: int = 0

    @property
    def relation(self) -> Relation:
        """Which data sets are neighbours."""
        return "replace-one" if self.kind == "fixed" else "zero-out"

    def words(self) -> str:
        """For the report."""
        if self.kind == "poisson":
            return f"Poisson sampling at a rate of {self.rate:g}"
        if self.kind == "fixed":
            return f"{self.chosen} of {self.of} clients, uniformly"
        return "no amplification by sampling"


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Noisy sums of one kind: Gaussian noise in clip lengths, how clients came into them, how many sums."""

    noise: float
    sampling: Sampling
    times: int = 1


def library() -> Any:
    """The package `dp_accounting`, or one sentence on how to get it."""
    with importing("private needs the package dp-accounting: install covey[private]"):
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    logging.getLogger("absl").setLevel(logging.ERROR)  # it tells of every order of RDP that is of no use
    return dp_accounting


def relation_of(sums: Sequence[Sums]) -> Relation:
    """The relation under which all of them are accounted: replaced clients, as soon as one kind needs it."""
    return "replace-one" if any(one.sampling.kind == "fixed" for one in sums) else "zero-out"


def event_of(sums: Sequence[Sums]) -> Any:
    """The sums as an event of dp-accounting."""
    dp = library()
    replaced = relation_of(sums) == "replace-one"
    events = []
    for one in sums:
        if not one.times:
            continue
        noise, sampling = one.noise / (2 if replaced else 1), one.sampling
        event = dp.GaussianDpEvent(noise)
        if sampling.kind == "fixed" and sampling.chosen < sampling.of:
            event = dp.SampledWithoutReplacementDpEvent(sampling.of, sampling.chosen, event)
        elif sampling.kind == "poisson" and sampling.rate < 1 and not replaced:
            event = dp.PoissonSampledDpEvent(sampling.rate, event)
        events.append(dp.SelfComposedDpEvent(event, one.times))
    return dp.ComposedDpEvent(events)


def fresh_accountant(sums: Sequence[Sums], accountant: Accountant) -> Any:
    """An accountant of dp-accounting that knows this kind of event."""
    dp = library()
    if relation_of(sums) == "replace-one":  # what only RDP can account for
        return dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    neighbours = dp.NeighboringRelation.REPLACE_SPECIAL
    if accountant == "rdp":
        return dp.rdp.RdpAccountant(neighboring_relation=neighbours)
    return dp.pld.PLDAccountant(neighbours, value_discretization_interval=GRID)


def epsilon_of(sums: Sequence[Sums], delta: float, accountant: Accountant = "pld") -> float:
    """Epsilon at `delta` of all these sums together."""
    there = tuple(one for one in sums if one.times)
    return _epsilon(there, delta, accountant) if there else 0.0


@lru_cache(maxsize=4096)
def _epsilon(sums: tuple[Sums, ...], delta: float, accountant: Accountant) -> float:
    if any(one.noise < LEAST_NOISE / 20 for one in sums):
        return math.inf
    if all(one.sampling.kind == "none" for one in sums):
        return float(library().get_epsilon_gaussian(as_one_sum(sums), delta))
    found = fresh_accountant(sums, accountant).compose(event_of(sums)).get_epsilon(delta)
    return float(found)


def as_one_sum(sums: Sequence[Sums]) -> float:
    """The noise of the one sum that is worth all of these, where nobody is sampled: 1 / z^2 = sum of times / z_i^2."""
    return float(sum(one.times / one.noise**2 for one in sums) ** -0.5)


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    *,
    sampling: Sampling,
    times: int,
    spent: tuple[Sums, ...] = (),
    accountant: Accountant = "pld",
) -> float:
    """The least noise with which `times` more sums keep within epsilon, after those that were `spent` already."""
    before = epsilon_of(spent, delta, accountant)
    used_up = UserError(
        f"private.epsilon is {epsilon:g}, and {before:.4g} of it is spent: no round is left; give more, or end here"
    )
    if before >= epsilon * (1 - LITTLE):
        raise used_up
    try:
        return _least_noise(epsilon, delta, sampling, times, spent, accountant)
    except library().NoBracketIntervalFoundError as error:  # no noise is enough
        raise used_up from error
    except (ValueError, ArithmeticError, RuntimeError) as error:
        raise UserError(
            f"private.epsilon is {epsilon:g} at private.delta {delta:g}, for which no noise is found: {error}"
        ) from error


def _least_noise(
    epsilon: float,
    delta: float,
    sampling: Sampling,
    times: int,
    spent: tuple[Sums, ...],
    accountant: Accountant,
) -> float:
    dp = library()

    def planned(noise: float) -> tuple[Sums, ...]:
        return (*spent, Sums(noise=noise, sampling=sampling, times=times))

    if all(one.sampling.kind == "none" for one in planned(1.0)):
        left = dp.get_sigma_gaussian(epsilon, delta) ** -2 - (as_one_sum(spent) ** -2 if spent else 0.0)
        return float(max(LEAST_NOISE, (times / left) ** 0.5))
    if epsilon_of(planned(LEAST_NOISE), delta, accountant) <= epsilon:
        return LEAST_NOISE
    found = dp.calibrate_dp_mechanism(
        make_fresh_accountant=lambda: fresh_accountant(planned(1.0), accountant),
        make_event_from_param=lambda noise: event_of(planned(noise)),
        target_epsilon=epsilon,
        target_delta=delta,
        bracket_interval=dp.LowerEndpointAndGuess(LEAST_NOISE, 1.0),
        tol=1e-3,
    )
    return float(found)
