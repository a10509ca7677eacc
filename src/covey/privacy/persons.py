"""What one person has lost who has several rows: exactly where noise is Gaussian, and not the loss of a row times them.

summaries, embeddings   answers that state their epsilon: as many times it as the person has rows
steps of training       of m rows each is in a batch by its own chance q: the sum moves by j clip lengths with
                        probability Binomial(m, q)(j), a mixture of Gaussians
sums, local updates     noise hides whatever of its data a client changes: m rows cost what one costs
promises                of an epsilon for one sample say nothing about several
"""

import math
from collections.abc import Mapping
from typing import Any

from covey.core.privacy_loss import Loss
from covey.privacy.accountant import GRID, LEAST_NOISE, library
from covey.privacy.composition import composed, distribution_of


def person_epsilon(told: Mapping[Loss, int], delta: float, rows: int) -> float:
    """Epsilon at `delta` of all that was told for a person with at most `rows` rows at the client."""
    if rows == 1 or not told:
        return composed(told, delta, "sample")
    if any(unbounded(loss) for loss in told):
        return math.inf
    distribution = library().pld.privacy_loss_distribution
    pure, whole = 0.0, distribution.identity(value_discretization_interval=GRID)
    for loss, times in sorted(told.items(), key=str):
        if loss.mechanism == "stated":
            pure += loss.noise * times * (1 if loss.whole else rows)
        elif loss.mechanism == "steps":
            whole = whole.compose(several(loss, rows).self_compose(times))
        else:
            whole = whole.compose(distribution_of(distribution, loss, times, "sample"))
    gaussian = any(loss.mechanism != "stated" for loss in told)
    return pure + (float(whole.get_epsilon_for_delta(delta)) if gaussian else 0.0)


def several(loss: Loss, rows: int) -> Any:
    """One step, for that many rows of which each is drawn by itself."""
    distribution = library().pld.privacy_loss_distribution
    if loss.rate >= 1:
        return distribution.from_gaussian_mechanism(loss.noise / rows, value_discretization_interval=GRID)
    chances = [
        math.comb(rows, drawn) * loss.rate**drawn * (1 - loss.rate) ** (rows - drawn)
        for drawn in range(rows + 1)
    ]
    return distribution.from_mixture_gaussian_mechanism(
        loss.noise, list(range(rows + 1)), chances, value_discretization_interval=GRID
    )


def unbounded(loss: Loss) -> bool:
    """Whether it says nothing about several rows of a person."""
    fixed = loss.mechanism == "sum" and bool(loss.of)  # which only RDP accounts for
    noiseless = loss.mechanism in ("sum", "local", "steps") and loss.noise < LEAST_NOISE / 20
    return loss.mechanism == "promised" or fixed or noiseless or not loss.noise
