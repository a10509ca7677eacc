"""The noise of each round, so that all rounds together keep to the budget, whatever has been spent."""

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from covey.core import Key, Round, Select
from covey.parts.selection.plain import Poisson, Uniform
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for
from covey.privacy.banded import InTurn
from covey.privacy.settings import Private

SPENT: Key[list[dict[str, Any]]] = Key("private.sums")  # the sums that were told so far
NOISE: Key[dict[str, Any]] = Key("private.noise")  # the noise in use, and for which plan it was found
CLIP: Key[float] = Key("private.clip")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many rounds there will be, and how clients come into them."""

    settings: Private
    rounds: int
    select: Select

    def sampling(self, now: Round) -> Sampling:
        """What is known of this round's draw."""
        return self.accounted(len(now.here))

    def accounted(self, clients: int) -> Sampling:
        """How so many clients are drawn, for the accountant; amplification only where chance alone decides, in secret.

        Noise of the clients is to hide them from the server as well, which knows whom it drew.
        """
        if self.settings.secure and self.settings.noise_from == "clients":
            return Sampling()
        return planned_sampling(self.select, clients)

    def times(self, rounds: int) -> int:
        """The most sums that one client is in, of that many rounds."""
        return math.ceil(rounds / self.settings.bands)

    def turn(self, number: int, clients: Sequence[int]) -> Sequence[int]:
        """Who of them can be in the sums of that round."""
        return self.select.turn(number, clients) if isinstance(self.select, InTurn) else clients

    def noise(self, now: Round, sampling: Sampling) -> float:
        """The noise of this round, in clip lengths; 0 where sums have none."""
        if self.settings.epsilon is None:
            return self.settings.noise or 0.0
        kept = NOISE.get(now.memory, {})
        plan = {"rounds": self.rounds, "sampling": asdict(sampling), "epsilon": self.settings.epsilon}
        if kept.get("plan") != plan:
            found = noise_for(
                self.settings.epsilon,
                self.settings.delta,
                sampling=sampling,
                times=self.times(max(1, self.rounds - now.number + 1)),
                spent=spent_sums(now.memory),
                accountant=self.settings.accountant,
            )
            kept = {"plan": plan, "noise": found}
            NOISE.keep(now.memory, kept)
        return float(kept["noise"])

    def book(self, now: Round, noise: float, sampling: Sampling) -> float:
        """Books the sums of this round, and gives what the run has spent in all."""
        if (now.number - 1) % self.settings.bands == 0:  # for the cohorts that come after, too
            tries = now.fleet.ledger.tries
            book_sums(now.memory, Sums(noise=noise, sampling=sampling, times=tries))
        return epsilon_of(spent_sums(now.memory), self.settings.delta, self.settings.accountant)


def planned_sampling(select: Select, clients: int) -> Sampling:
    """How a selection draws of that many clients, for the accountant.

    Chance alone decides in covey's own parts; what is made of them may draw in another way.
    """
    if type(select) is Poisson or type(select) is InTurn:
        return Sampling(kind="poisson", rate=select.rate)
    if type(select) is Uniform and select.per_round < clients:
        return Sampling(kind="fixed", chosen=select.per_round, of=clients)
    return Sampling()


def spent_sums(memory: Mapping[str, Any]) -> tuple[Sums, ...]:
    """What was told so far."""
    kept = SPENT.get(memory, [])
    return tuple(
        Sums(noise=one["noise"], sampling=Sampling(**one["sampling"]), times=one["times"]) for one in kept
    )


def book_sums(memory: MutableMapping[str, Any], told: Sums) -> None:
    """Adds sums to those that were told so far."""
    sums = list(spent_sums(memory))
    if sums and (sums[-1].noise, sums[-1].sampling) == (told.noise, told.sampling):
        sums[-1] = replace(sums[-1], times=sums[-1].times + told.times)
    else:
        sums.append(told)
    SPENT.keep(memory, [asdict(one) for one in sums])
