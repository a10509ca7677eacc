"""More rounds for a private run: what they cost is said, and chosen, before any of them is made."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from covey.errors import UserError
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for
from covey.privacy.local import local_noise
from covey.privacy.plan import spent_sums
from covey.privacy.settings import Private

LongerBudget = float | Literal["same-noise", "kept"]


def longer_private(
    settings: Private,
    memory: Mapping[str, Any],
    *,
    planned: int,
    done: int,
    rounds: int,
    budget: LongerBudget | None,
) -> tuple[dict[str, float | None], str]:
    """What changes in [private] so that a run of `planned` rounds has `rounds`, and a sentence that says what it costs.

    budget: a number, the epsilon of all rounds together; same-noise, and epsilon becomes what that costs; kept: the
    same epsilon, of which little is left, and so far more noise. None: refused, as soon as rounds were made.
    """
    if settings.epsilon is None or rounds <= planned:
        if budget is not None:
            raise UserError(
                f"--epsilon is {budget}, which goes with more rounds of a run with private.epsilon: it has "
                f"{planned} rounds, private.epsilon {settings.epsilon} and private.noise {settings.noise}"
            )
        return {}, ""
    if settings.bands > 1:
        raise UserError(
            f"rounds is {rounds}, but a run with private.bands = {settings.bands} was planned for "
            f"{planned}: its noise is "
            "of one piece; begin anew with more rounds"
        )
    if isinstance(budget, int):
        budget = float(budget)
    told = told_sums(settings, memory, planned, done)
    if not told:
        if budget is not None:
            raise UserError(
                f"--epsilon is {budget}, but no round was made yet: begin anew, with private.epsilon"
            )
        return {}, ""  # as if it had been planned so
    if settings.level == "example":
        return longer_examples(settings, planned, rounds, budget)
    more = rounds - done
    same = epsilon_of([*told, replace(told[-1], times=more)], settings.delta, settings.accountant)
    before = told[-1].noise * (2 if settings.level == "local" else 1)
    if budget is None:
        raise UserError(
            f"rounds is {rounds}, but private.epsilon = {settings.epsilon:g} was planned for {planned}: "
            f"{prospect(settings, told, before, more)}. Say what is wanted: --epsilon same-noise (epsilon "
            f"is then "
            f"{up(same):g} in all), a larger --epsilon of your own, or --epsilon kept"
        )
    if budget == "same-noise":
        words = (
            f"the noise stays at {before:.4g} clip lengths: {rounds} rounds cost epsilon {up(same):g} in all"
        )
        return {"epsilon": None, "noise": before}, words
    epsilon = checked(settings, budget)
    if settings.level == "local" and epsilon < same:
        raise UserError(
            f"--epsilon is {budget}, but clients that have sent {done} updates can send {more} more for "
            f"{up(same):g} in all at least; allowed: that or more"
        )
    given = replace(settings, epsilon=epsilon)
    noise = local_noise(given, rounds) if settings.level == "local" else noise_of_rest(given, told, more)
    words = f"{more} more rounds within epsilon {epsilon:g} have noise of {noise:.4g} clip lengths, after {before:.4g}"
    return {"epsilon": epsilon}, words


def longer_examples(
    settings: Private, planned: int, rounds: int, budget: LongerBudget | None
) -> tuple[dict[str, float | None], str]:
    """Where each client finds its own noise: its loss grows at most in proportion to the rounds."""
    assert settings.epsilon is not None
    enough = up(settings.epsilon * rounds / planned)
    if not (isinstance(budget, float) and budget >= enough):
        raise UserError(
            f"rounds is {rounds}, but private.epsilon = {settings.epsilon:g} was planned for {planned}, "
            f"and clients "
            f"that have used it up train no more. Say what {rounds} rounds may cost: --epsilon {enough:g} "
            f"or more"
        )
    return {"epsilon": budget}, f"{rounds} rounds cost a sample at most epsilon {budget:g} in all"


def told_sums(settings: Private, memory: Mapping[str, Any], planned: int, done: int) -> tuple[Sums, ...]:
    """What was told so far, the last kind of noise last."""
    if settings.level == "client":
        return spent_sums(memory)
    if not done:
        return ()
    noise = local_noise(settings, planned) if settings.level == "local" else math.inf  # each client's own
    return (
        Sums(noise=noise / 2, sampling=Sampling(), times=done),
    )  # another update is two clip lengths away


def prospect(settings: Private, told: tuple[Sums, ...], before: float, more: int) -> str:
    """What happens to further rounds if epsilon stays."""
    if settings.level == "local":
        return "clients whose updates have used it up would work no more"
    try:
        noise = noise_of_rest(settings, told, more)
    except UserError:
        return "nothing of it is left for more"
    return (
        f"what is left of it puts noise of {noise:.4g} clip lengths on {more} more, in place of {before:.4g}"
    )


def noise_of_rest(settings: Private, told: tuple[Sums, ...], more: int) -> float:
    """The noise of further rounds that keeps all within epsilon."""
    assert settings.epsilon is not None
    return noise_for(
        settings.epsilon,
        settings.delta,
        sampling=told[-1].sampling,
        times=more,
        spent=told,
        accountant=settings.accountant,
    )


def checked(settings: Private, budget: LongerBudget) -> float:
    """The epsilon that is meant."""
    assert settings.epsilon is not None
    if budget == "kept":
        return settings.epsilon
    if not isinstance(budget, float) or not settings.epsilon <= budget < float("inf"):
        raise UserError(
            f"--epsilon is {budget}, but private.epsilon is {settings.epsilon:g}; allowed: a number from "
            f"that on, "
            "same-noise, kept"
        )
    return budget


def up(epsilon: float) -> float:
    """Rounded up to what is printed."""
    step = 10.0 ** (math.ceil(math.log10(epsilon)) - 5)
    return math.ceil(epsilon / step) * step
