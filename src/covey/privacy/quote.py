"""What a private run will cost, before it is made: the noise for an epsilon, or the epsilon of a noise."""

from dataclasses import dataclass

from covey.core import Method
from covey.core.privacy_loss import Loss, Told
from covey.errors import UserError
from covey.privacy.accountant import Sampling, noise_for
from covey.privacy.composition import composed
from covey.privacy.example import ExampleTrain, opacus_epsilon
from covey.privacy.local import local_noise, promise
from covey.privacy.settings import Private
from covey.privacy.sums import NoisySums, loss_of

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
    told: Told = {}
    if isinstance(method.local, ExampleTrain):
        return example_quote(method.local, settings, samples, noise)
    if settings.level == "local":
        noise = local_noise(settings, rounds)
        sampling, loss = Sampling(), Loss(what="updates", mechanism="local", noise=noise)
        neighbours = "a client's update in place of any other"
    else:
        assert isinstance(method.gather, NoisySums)
        plan = method.gather.plan
        sampling = plan.accounted(clients)
        before = getattr(method.group, "planned", None)
        noise = settings.noise or noise_for(
            settings.epsilon or 0.0,
            settings.delta,
            sampling=sampling,
            times=plan.times(rounds),
            spent=() if before is None else (before,),
            accountant=settings.accountant,
        )
        loss, neighbours = loss_of(noise, sampling), NEIGHBOURS[sampling.relation]
        rounds = plan.times(rounds)
        if before is not None:
            told = {Loss(what="embeddings", mechanism="sum", noise=before.noise): before.times}
    return Quote(
        noise=noise,
        epsilon=composed(
            {loss: rounds} | told, settings.delta, accountant=settings.accountant
        ),  # as it is booked
        delta=settings.delta,
        sums=rounds,
        sampling=sampling.words(),
        neighbours=neighbours,
    )


def example_quote(step: ExampleTrain, settings: Private, samples: int | None, noise: float | None) -> Quote:
    """For a client with `samples` samples: the promise, as it is booked, or that for which Opacus finds this noise."""
    if samples is None:
        raise UserError(
            'samples is missing: with private.level = "example" the noise depends on how many a client has'
        )
    rate, steps = step.rate(samples), step.steps(samples) * step.rounds
    if noise is None:
        noise, epsilon = step.noise(samples), composed({promise(settings): 1}, settings.delta, "sample")
    else:
        epsilon = opacus_epsilon(((noise, rate, steps),), step.delta)
    return Quote(
        noise=noise,
        epsilon=epsilon,
        delta=settings.delta,
        sums=steps,
        sampling=f"every sample with a chance of {rate:g}",
        neighbours="one sample of a client is there or not",
    )
