"""Where every client protects itself: the server is shown single updates, and books what they cost."""

from dataclasses import dataclass

from covey.core import Key, Reply, Round, Step
from covey.core.privacy_loss import Loss
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for
from covey.privacy.settings import Private

REPEATED: Key[int] = Key("private.repeated")  # rounds that a stopped server of real sites made again


@dataclass(frozen=True, kw_only=True)
class BookedReplies:
    """Every reply by itself; what each cost its client is booked, and a client with nothing left is asked no more."""

    settings: Private
    rounds: int
    noise: float = 0.0

    @property
    def evaluations(self) -> float | None:
        """Privacy loss of one evaluation at a client; None where such evaluations have no noise."""
        return self.settings.evaluations

    def __call__(self, now: Round, step: Step) -> list[Reply]:
        again = now.fleet.ledger.tries - 1
        REPEATED.keep(now.memory, REPEATED.get(now.memory, 0) + again)
        now.tasks = {client: task for client, task in now.tasks.items() if self.may(now, client)}
        for client in now.seen if again else now.tasks:  # whom a lost try asked is not known
            self.book(now, client)
        now.notes["noise of the clients"] = {"text": self.words()}
        return now.fleet.ask(step, now.tasks) if now.tasks else []

    def may(self, now: Round, client: int) -> bool:
        """Whether one more update keeps to the budget, after all that the client sent, under whatever noise."""
        if self.settings.level == "example" or self.settings.epsilon is None:
            return True
        told = [self.loss(now), *now.fleet.ledger.told.get(client, {})]
        times = [now.fleet.ledger.tries, *now.fleet.ledger.told.get(client, {}).values()]
        sums = [
            Sums(noise=loss.noise / 2, sampling=Sampling(), times=count)
            for loss, count in zip(told, times, strict=True)
            if loss.mechanism == "local"
        ]
        return epsilon_of(sums, self.settings.delta) <= self.settings.epsilon * (1 + 1e-6)

    def book(self, now: Round, client: int) -> None:
        """An update with noise costs each time; a promise is made for all of them, and one of a longer run for more."""
        loss, told = self.loss(now), now.fleet.ledger.told.get(client, {})
        if self.settings.level == "local":
            now.fleet.ledger.lose(client, loss)
        elif loss not in told:
            for earlier in [one for one in told if one.mechanism == "promised"]:
                del told[earlier]
            now.fleet.ledger.lose(client, loss)

    def loss(self, now: Round) -> Loss:
        if self.settings.level == "local":
            return Loss(what="updates", mechanism="local", noise=self.noise)
        return promise(self.settings, 1 + REPEATED.get(now.memory, 0) / self.rounds)

    def words(self) -> str:
        """For the report."""
        if self.settings.level == "local":
            return f"Every client adds Gaussian noise of {self.noise:.4g} clip lengths of {self.settings.clip_length}."
        return (
            f"Every client trains with noise on clipped gradients (Opacus), so that one sample loses at most epsilon "
            f"{self.settings.epsilon:g} at delta {self.settings.delta / 2:g} in all rounds."
        )


def promise(settings: Private, share: float = 1.0) -> Loss:
    """What a client that trains with Opacus sees to itself; half of delta is left for all else that it tells.

    `share`: how many rounds it trains in, of those that were planned; the loss grows at most in proportion, as RDP adds
    up and the term of delta stays.
    """
    assert settings.epsilon is not None
    return Loss(what="updates", mechanism="promised", noise=settings.epsilon * share, rate=settings.delta / 2)


def local_noise(settings: Private, rounds: int) -> float:
    """In clip lengths: one update in place of another is two of them away."""
    if settings.noise is not None:
        return settings.noise
    assert settings.epsilon is not None
    return 2 * noise_for(settings.epsilon, settings.delta, sampling=Sampling(), times=rounds)
