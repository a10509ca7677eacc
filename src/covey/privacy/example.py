"""Training that hides single samples: DP-SGD (Abadi et al., 2016), at the client, by Opacus or lanes."""

import math
import secrets
import warnings
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np

from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.core.privacy_loss import Loss, Told
from covey.errors import Refused
from covey.parts.steps.gaussian_noise import system_gaussian
from covey.parts.steps.train import Train, best_row
from covey.settings import ClipLength, Count, Epsilon, Range
from covey.training.bench.clipping import Clipping, opacus_library, poisson_batches


@step(kind="train.example")
class ExampleTrain(Step):
    """SGD on gradients that are clipped sample by sample and summed with noise; every batch is a Poisson sample.

    v <- v - lr (sum over the batch of min(1, C / ||g_i||) g_i + N(0, (z C)^2)) / expected batch. The client finds z, so
    that all its updates of `rounds` rounds cost one sample at most `epsilon` at `delta`, and trains in no more rounds.

    Args:
        train: epochs, batch and learning rate.
        clip: C, the longest gradient of a sample.
        epsilon: privacy loss of one sample over all rounds.
        delta: the chance that it is larger.
        rounds: in which the client may be asked to train.
    """

    train: Train
    clip: ClipLength
    epsilon: Epsilon
    delta: Annotated[float, Range(above=0, below=1)]
    rounds: Count

    accounted: ClassVar[bool] = True

    def __call__(self, client: Client, task: Task) -> Reply:
        opacus_library()
        done = int(client.state.get("private rounds", 0))
        if done >= self.rounds:
            raise Refused(f"this client has trained in {done} rounds, for which its privacy loss was planned")
        slot, start = best_row(client, task)
        x, y = self.train.training_part(client).tensors()
        rate, steps, noise = self.rate(len(y)), self.steps(len(y)), self.noise(len(y))
        client.state["private spent"] = self.spent(client, noise, rate, steps)
        scale = self.clip * noise
        if client.account is not None:  # whatever was planned, a real device counts every step
            client.account.lose(Loss(what="updates", mechanism="steps", noise=noise, rate=rate), times=steps)
        client.state["private rounds"] = done + 1
        rng = np.random.default_rng(secrets.randbits(128)) if client.live else client.rng
        size = client.bench.layout.trainable
        batches = poisson_batches(len(y), rate, rng, steps)
        clipping = Clipping(
            clip=self.clip,
            expected=max(1.0, rate * len(y)),
            noise=lambda: system_gaussian(size, scale) if client.live else rng.normal(0.0, scale, size),
            seed=int(rng.integers(2**62)),
        )
        row = client.bench.fit_clipped(
            start, x, y, batches, self.train.recipe(client.round, len(y)), clipping
        )
        return Reply(id=client.id, vector=row, slot=slot, size=1)

    def planned(self, samples: int, rounds: int) -> Told:
        """What a client with that many samples would tell in that many rounds of training."""
        loss = Loss(what="updates", mechanism="steps", noise=self.noise(samples), rate=self.rate(samples))
        return {loss: self.steps(samples) * min(rounds, self.rounds)}

    def spent(self, client: Client, noise: float, rate: float, steps: int) -> list[list[float]]:
        """All steps of the client in this run with these, as [noise, rate, steps]; more than `epsilon` is refused.

        As long as one plan holds, the number of rounds says it. A run that continues for longer, or data that grow,
        make another one.
        """
        told = {(z, q): count for z, q, count in client.state.get("private spent", [])}
        told[noise, rate] = told.get((noise, rate), 0) + steps
        history = tuple((z, q, int(count)) for (z, q), count in told.items())
        if len(history) > 1 and opacus_epsilon(history, self.delta) > self.epsilon:
            raise Refused(
                f"one more round of this client would make its privacy loss more than {self.epsilon:g}"
            )
        return [list(entry) for entry in history]

    def rate(self, samples: int) -> float:
        """The chance of a sample to be in a batch."""
        return min(1.0, self.train.batch / samples)

    def noise(self, samples: int) -> float:
        """In clip lengths, for a client with that many samples."""
        return opacus_noise(self.epsilon, self.delta, self.rate(samples), self.steps(samples) * self.rounds)

    def steps(self, samples: int) -> int:
        """Batches of one round."""
        whole = self.train.epochs_for(samples) * math.ceil(samples / self.train.batch)
        return whole if self.train.batches is None else min(whole, self.train.batches)

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {}

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test)


def opacus_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise for a budget, as Opacus finds it; the same for clients of the same size."""
    key = (epsilon, delta, rate, steps)
    if key not in FOUND:
        from opacus.accountants.utils import get_noise_multiplier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FOUND[key] = float(
                get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant="rdp",
                    epsilon_tolerance=TOLERANCE * epsilon,
                    alphas=ORDERS,
                )
            )
    return FOUND[key]


@lru_cache(maxsize=4096)
def opacus_epsilon(history: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """What these steps cost, as (noise, rate, steps), by Opacus' accountant."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = list(history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, alphas=ORDERS))


ORDERS = (1.5, *range(2, 64), 80, 128, 256)  # of Renyi; whole ones are quick, and fewer are never too good
TOLERANCE = 0.01  # share of epsilon by which the noise may be more than needed
FOUND: dict[tuple[float, float, float, int], float] = {}
