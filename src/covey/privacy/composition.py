"""What one client has lost in all: everything that it told, composed by `dp-accounting`.

Two readings of the same numbers. For one *sample*: its data with and without that sample look alike. For the *client*:
its data and any others look alike. Summaries, embeddings and gradients under noise protect samples only.
"""

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Literal

from covey.core.privacy_loss import Loss
from covey.privacy.accountant import GRID, LEAST_NOISE, Accountant, Sampling, Sums, epsilon_of, library

Whose = Literal["sample", "client"]

PURE = 50.0  # of losses without a delta that are larger than this the sum is as good as any other number


def composed(
    told: Mapping[Loss, int], delta: float, whose: Whose = "client", accountant: Accountant = "pld"
) -> float:
    """Epsilon at `delta` of all that was told; infinite where something does not protect at that level.

    Of sums, and of updates with noise of their own, it is the number for which their noise was found.
    """
    return _composed(frozenset(told.items()), delta, whose, accountant)


@lru_cache(maxsize=4096)
def _composed(told: frozenset[tuple[Loss, int]], delta: float, whose: Whose, accountant: Accountant) -> float:
    if not told:
        return 0.0
    if any(unprotected(loss, whose) for loss, _ in told):
        return math.inf
    stated = {(loss, times) for loss, times in told if loss.mechanism == "stated"}
    pure = sum(loss.noise * times for loss, times in stated)
    rest = told - stated
    if not rest:
        return pure
    if (sums := as_sums(rest, whose)) is None:
        return within_promise(told, distributed(told, delta, whose), delta)
    alone = pure + epsilon_of(sums, delta, accountant)  # what has no delta adds up
    return min(alone, distributed(told, delta, whose)) if stated else alone


def as_sums(told: Collection[tuple[Loss, int]], whose: Whose) -> tuple[Sums, ...] | None:
    """The same as sums of whole clients, where they are: for one sample only what is not drawn one by one.

    One sample more or less makes another update, two clip lengths away: as half the noise, which fixed-size sampling
    is accounted with anyway.
    """
    replaced = whose == "sample" and not any(is_fixed(loss) for loss, _ in told)
    found = []
    for loss, times in sorted(told, key=str):
        if loss.mechanism not in ("sum", "local") or (replaced and loss.rate < 1):
            return None
        sampling = Sampling()
        if is_fixed(loss):
            sampling = Sampling(kind="fixed", chosen=loss.chosen, of=loss.of)
        elif loss.rate < 1:
            sampling = Sampling(kind="poisson", rate=loss.rate)
        half = loss.mechanism == "local" or replaced
        found.append(Sums(noise=loss.noise / (2 if half else 1), sampling=sampling, times=times))
    return tuple(found)


def within_promise(told: Collection[tuple[Loss, int]], epsilon: float, delta: float) -> float:
    """A promise that stands alone is not made larger by rounding losses to a grid."""
    promises = [loss.noise for loss, _ in told if loss.mechanism == "promised" and loss.rate <= delta]
    return min(epsilon, promises[0]) if len(promises) == len(told) == 1 else epsilon


def distributed(told: Collection[tuple[Loss, int]], delta: float, whose: Whose) -> float:
    """Everything by its distribution of privacy losses, so that large ones seldom meet."""
    dp = library()
    distribution = dp.pld.privacy_loss_distribution
    fixed = as_sums([(loss, times) for loss, times in told if is_fixed(loss)], "client")
    pure, whole = 0.0, distribution.identity(value_discretization_interval=GRID)
    for loss, times in sorted(told, key=str):
        if is_fixed(loss):
            continue
        if loss.mechanism == "stated" and loss.noise * times > PURE:
            pure += loss.noise * times
            continue
        whole = whole.compose(distribution_of(distribution, loss, times, whose))
    if fixed:  # known at one delta only: half of it, and what is left for the rest
        epsilon = epsilon_of(fixed, delta / 2)
        parameters = dp.pld.common.DifferentialPrivacyParameters(epsilon, delta / 2)
        whole = whole.compose(
            distribution.from_privacy_parameters(parameters, value_discretization_interval=GRID)
        )
    return pure + float(whole.get_epsilon_for_delta(delta))


def is_fixed(loss: Loss) -> bool:
    """Whether that many of all clients were drawn, which only RDP accounts for."""
    return loss.mechanism == "sum" and bool(loss.of)


def unprotected(loss: Loss, whose: Whose) -> bool:
    """Whether it says nothing about that level: noise for one sample hides no client."""
    for_samples = loss.mechanism in ("promised", "steps") or (loss.mechanism == "stated" and not loss.whole)
    no_noise = loss.mechanism not in ("promised", "stated") and loss.noise < LEAST_NOISE / 20
    return not loss.noise or no_noise or (whose == "client" and for_samples)


def distribution_of(distribution: Any, loss: Loss, times: int, whose: Whose) -> Any:
    """The privacy loss distribution of that many uses."""
    dp = library()
    if loss.mechanism == "stated":
        parameters = dp.pld.common.DifferentialPrivacyParameters(loss.noise, 0.0)
        return distribution.from_privacy_parameters(
            parameters, value_discretization_interval=GRID
        ).self_compose(times)
    if loss.mechanism == "promised":  # once, for however many updates
        parameters = dp.pld.common.DifferentialPrivacyParameters(loss.noise, loss.rate)
        return distribution.from_privacy_parameters(parameters, value_discretization_interval=GRID)
    if loss.mechanism == "local":  # any update in place of another, whoever's sample it is
        return distribution.from_gaussian_mechanism(
            loss.noise / 2 / math.sqrt(times), value_discretization_interval=GRID
        )
    # One sample more or less makes another update of the client; a client, or in `steps` a sample, is there or not.
    replaced = loss.mechanism == "sum" and whose == "sample"
    neighbours = dp.NeighboringRelation.REPLACE_ONE if replaced else dp.NeighboringRelation.REPLACE_SPECIAL
    one = distribution.from_gaussian_mechanism(
        loss.noise,
        value_discretization_interval=GRID,
        sampling_prob=loss.rate,
        neighboring_relation=neighbours,
    )
    return one.self_compose(times)


def by_kind(
    told: Mapping[Loss, int], delta: float, whose: Whose, accountant: Accountant = "pld"
) -> dict[str, float]:
    """What each kind of answer cost by itself, and all together under `all`."""
    kinds = sorted({loss.what for loss in told})
    parts: dict[str, float] = {
        kind: composed(
            {loss: times for loss, times in told.items() if loss.what == kind}, delta, whose, accountant
        )
        for kind in kinds
    }
    return {**parts, "all": composed(told, delta, whose, accountant)} if parts else {}


def statement(
    told: Mapping[int, Mapping[Loss, int]], delta: float, accountant: Accountant = "pld"
) -> dict[str, Any]:
    """What every client has lost, for `summary.json`: by kind and in all, for one sample and for the whole client.

    A loss without a bound is null.
    """
    known: dict[frozenset[tuple[Loss, int]], dict[str, Any]] = {}  # many clients told the same

    def lost(losses: Mapping[Loss, int]) -> dict[str, Any]:
        if (key := frozenset(losses.items())) not in known:
            known[key] = {
                whose: {kind: bounded(e) for kind, e in by_kind(losses, delta, whose, accountant).items()}
                for whose in ("sample", "client")
            }
        return known[key]

    clients = {str(client): lost(losses) for client, losses in sorted(told.items())}
    return {"delta": delta, "clients": clients} if clients else {}


def bounded(epsilon: float) -> float | None:
    """The number, or nothing where there is no bound."""
    return round(epsilon, 6) if math.isfinite(epsilon) else None
