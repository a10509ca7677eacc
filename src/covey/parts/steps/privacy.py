"""Differential privacy for what a client tells about its data: noise, budget, and what is not private.

The mechanism is Laplace's: noise of scale sensitivity / epsilon on every count of an agreed table gives
(epsilon, 0)-differential privacy for adding or removing one sample. Everything after it (clipping at zero,
normalising, deciding which labels are there) only reads the noisy table and costs nothing more.
"""

import math
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.errors import Refused, UserError
from covey.parts.steps.gaussian_noise import opendp_library
from covey.settings import Epsilon, Positive, validated

SummaryNoise = Literal["simulated", "opendp", "published"]

PRESENT_SIGMAS = 3.0  # a label is there when its noisy total is this many standard deviations above zero


@validated
class Privacy:
    """How a summary is protected.

    `opendp` draws from OpenDP's secure source (private, cannot be repeated); `simulated` draws the same distribution
    from the client's seeded stream, so that a simulation can be repeated bit for bit (a real device, where the seed is
    no secret, takes OpenDP instead); `published` is the HACCS authors' noise on the bins that are not empty, which is
    NOT private.

    Args:
        epsilon: privacy loss of one summary; none sends exact numbers.
        noise: how the noise is drawn: simulated (repeatable), opendp (secure), published (not private).
        budget: the most epsilon that a client ever spends; none is no limit.
    """

    epsilon: Epsilon | None = None
    noise: SummaryNoise = "simulated"
    budget: Positive | None = None

    def __post_init__(self) -> None:
        if self.budget is not None and (self.epsilon is None or self.noise == "published"):
            what = "no epsilon" if self.epsilon is None else 'noise = "published"'
            raise UserError(
                f"budget is {self.budget!r} with {what}, which is not private: no budget can be kept"
            )

    @property
    def counted(self) -> bool:
        """Whether a summary has a privacy loss that can be counted."""
        return self.epsilon is not None and self.noise != "published"

    def note(self) -> str:
        """One sentence for the report: what this protects."""
        if self.epsilon is None:
            return "Summaries are exact: no differential privacy."
        if self.noise == "published":
            return "Summaries carry the published noise on non-empty bins only: NOT differentially private."
        if self.noise == "simulated":
            return (
                f"Summaries carry simulated Laplace noise for epsilon {self.epsilon:g}: the right distribution, "
                "drawn from the run's seed. Real devices draw it from OpenDP."
            )
        return f"Summaries are ({self.epsilon:g}, 0)-differentially private for one sample (OpenDP)."


def spend(account: MutableMapping[str, Any], privacy: Privacy) -> float:
    """Book one summary in the client's account, give its new total; refuse beyond the budget."""
    spent = float(account.get("epsilon", 0.0))
    if not privacy.counted or privacy.epsilon is None:
        return spent
    total = spent + privacy.epsilon
    if privacy.budget is not None and total > privacy.budget * (1 + 1e-9):
        raise Refused(
            f"a summary of epsilon {privacy.epsilon:g} is refused: {spent:g} of the budget of "
            f"{privacy.budget:g} is spent."
        )
    account["epsilon"] = total
    return total


def add_noise(counts: Array, *, sensitivity: float, privacy: Privacy, rng: np.random.Generator) -> Array:
    """Noise on every bin of `counts`; `sensitivity` is how much one sample changes their sum (L1)."""
    if privacy.epsilon is None:
        return counts
    if privacy.noise == "published":
        return published_noise(counts, epsilon=privacy.epsilon, rng=rng)
    scale = sensitivity / privacy.epsilon
    if privacy.noise == "simulated":
        return counts + rng.laplace(0.0, scale, counts.shape)
    noisy = _opendp_laplace(scale, sensitivity, privacy.epsilon)(counts.ravel().tolist())
    return np.asarray(noisy, dtype=np.float64).reshape(counts.shape)


def published_noise(counts: Array, *, epsilon: float, rng: np.random.Generator) -> Array:
    """The HACCS authors' noise: Laplace(1/epsilon) on non-empty bins, negative ones become min(count, 1).

    Not differentially private: empty bins stay empty, which shows exactly which labels a client has, and the
    scale ignores how many counts one image moves.
    """
    noisy = counts + rng.laplace(0.0, 1.0 / epsilon, counts.shape)
    kept: Array = np.where(noisy < 0, np.minimum(counts, 1.0), noisy)
    return np.asarray(np.where(counts > 0, kept, 0.0), dtype=np.float64)


def shares(counts: Array) -> Array:
    """Clip at zero and normalise along the last axis; nothing left becomes uniform."""
    kept = np.maximum(counts, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    uniform = np.full_like(kept, 1.0 / counts.shape[-1])
    return np.asarray(np.divide(kept, total, out=uniform, where=total > 0))


def present(counts: Array, *, sensitivity: float, privacy: Privacy) -> NDArray[np.bool_]:
    """Which rows of a noisy table stand out of the noise (exactly: which rows hold anything)."""
    totals = counts.sum(axis=-1)
    if not privacy.counted or privacy.epsilon is None:
        return np.asarray(totals > 0)
    deviation = math.sqrt(2.0 * counts.shape[-1]) * sensitivity / privacy.epsilon
    return np.asarray(totals > PRESENT_SIGMAS * deviation)


@lru_cache(maxsize=32)
def _opendp_laplace(scale: float, sensitivity: float, epsilon: float) -> Any:
    """OpenDP's vector Laplace mechanism, checked to cost no more than `epsilon`."""
    dp = opendp_library()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    mechanism = dp.m.make_laplace(*space, scale=scale)
    cost: float = mechanism.map(float(sensitivity))
    if cost > epsilon * (1 + 1e-9):
        raise UserError(f"epsilon is {epsilon!r}; OpenDP's mechanism of scale {scale!r} would cost {cost!r}.")
    return mechanism


def randomised(value: int, choices: int, epsilon: float, rng: np.random.Generator | None) -> int:
    """Randomised response over `choices` choices: the truth with probability e^epsilon / (e^epsilon + choices - 1).

    Without a generator the lie is OpenDP's, from a secure source.
    """
    truth = math.exp(epsilon) / (math.exp(epsilon) + choices - 1)
    if rng is not None:
        return value if rng.random() < truth else int((value + rng.integers(1, choices)) % choices)
    said: int = opendp_library().m.make_randomized_response(list(range(choices)), truth)(value)
    return said
