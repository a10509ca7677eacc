"""What a private run will cost, before it is made: the noise for an epsilon, or the epsilon of a noise."""

from __future__ import annotations

from dataclasses import dataclass

from covey.core.privacy_loss import Loss
from covey.core.round import Method
from covey.errors import UserError
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for
from covey.privacy.composition import composed
from covey.privacy.example import ExampleTrain
from covey.privacy.local import local_noise
from covey.privacy.plan import Plan
from covey.privacy.settings import Private
from covey.privacy.sums import loss_of

NEIGHBOURS = {
    "zero-out": "one client is there or not",
    "replace-one": "one client is replaced by another",
}


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Noise in clip lengths, and epsilon at delta for that many sums (example level: steps of training)."""

    noise: float
    epsilon: float
    delta: float
    sums: int
    sampling: str
    neighbours: str


def quote(
    method: Method,
    settings: Private,
    *,
    clients: int,
    rounds: int,
    samples: int | None = None,
    noise: float | None = None,
) -> Quote:
    """Of a method that was made private.

    The example level needs to know how many `samples` a client has, and may be asked for another `noise` than the one
    that its epsilon needs.
    """
    if isinstance(method.local, ExampleTrain):
        return example_quote(method.local, samples, noise)
    if settings.level == "local":
        noise = local_noise(settings, rounds)
        sampling, loss = Sampling(), Loss(what="updates", mechanism="local", noise=noise)
        neighbours = "a client's update in place of any other"
    else:
        plan: Plan = method.gather.plan  # type: ignore[attr-defined]
        sampling = plan.accounted(clients)
        noise = settings.noise or noise_for(
            settings.epsilon or 0.0,
            settings.delta,
            sampling=sampling,
            times=rounds,
            accountant=settings.accountant,
        )
        loss, neighbours = loss_of(noise, sampling), NEIGHBOURS[sampling.relation]
    return Quote(
        noise=noise,
        epsilon=composed({loss: rounds}, settings.delta, accountant=settings.accountant),  # as it is booked
        delta=settings.delta,
        sums=rounds,
        sampling=sampling.words(),
        neighbours=neighbours,
    )


def example_quote(step: ExampleTrain, samples: int | None, noise: float | None) -> Quote:
    """For a client with so many samples; half of delta is left for all else that it tells."""
    if samples is None:
        raise UserError(
            'samples is missing: with private.level = "example" the noise depends on how many a client has'
        )
    rate, steps = step.rate(samples), step.steps(samples) * step.rounds
    noise = noise or step.noise(samples)
    sums = Sums(noise=noise, sampling=Sampling(kind="poisson", rate=rate), times=steps)
    return Quote(
        noise=noise,
        epsilon=epsilon_of([sums], step.delta),
        delta=step.delta,
        sums=steps,
        sampling=f"every sample with a chance of {rate:g}",
        neighbours="one sample of a client is there or not",
    )
