"""Client-level differential privacy: the method is shown noisy sums of clipped updates, and never a single one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core import Reply, Round, Step
from covey.core.privacy_loss import Loss
from covey.errors import UserError
from covey.parts.steps.gaussian_noise import gaussian
from covey.parts.steps.private import stays_at_home
from covey.privacy.accountant import Sampling
from covey.privacy.banded import correlated
from covey.privacy.clipping import Split, clipped_sum, next_clip
from covey.privacy.plan import CLIP, Plan

Pool = tuple[int, int]  # a model's row, and a group (-1: everybody who trains that model)


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """One reply for each model (and each group, where the method looks at groups): the mean update, with noise.

    w + (sum over the clients of min(1, C / ||u_k||) u_k + N(0, (z C)^2)) / m, u_k = w_k - w, and m how many clients
    were to come into the sum, which no data decide. A client is in one sum of a round, so that all sums of the round
    together cost what one would. What a method makes of them costs nothing more.
    """

    plan: Plan
    by_group: bool = False

    @property
    def evaluations(self) -> float | None:
        """Privacy loss of one evaluation at a client; None where such evaluations have no noise."""
        return self.plan.settings.evaluations

    def __call__(self, now: Round, step: Step) -> list[Reply]:
        replies = now.fleet.ask(step, now.tasks) if now.tasks else []
        if now.tasks and not replies:
            return []
        settings = self.plan.settings
        sampling = self.plan.sampling(now)
        self.book_unheard(now)
        noise = self.plan.noise(now, sampling)
        pools = self.pools(now, replies)
        expected = {pool: self.expected(now, pool, members, sampling) for pool, members in pools.items()}
        whole = self.whole(expected)
        adaptive = settings.clip == "adaptive"
        clip = float(CLIP.get(now.memory, settings.first_clip if adaptive else settings.clip))  # type: ignore[arg-type]
        split = Split.of(noise, whole) if adaptive else Split(updates=noise, count=0.0)
        shown, short, home = [], 0, stays_at_home(step, now.fleet.layout)
        for number, (pool, members) in enumerate(pools.items()):
            there = set(members)
            heard = [reply for reply in replies if reply.id in there and reply.slot == pool[0]]
            total, few = clipped_sum(
                [update(now, reply) for reply in heard], self.room(now) * clip, now.models.shape[1]
            )
            short += few
            noisy = self.noisy(now, total, (pool[0], number), split.updates, clip)
            if home is not None:
                noisy[home] = 0.0
            behind = self.behind(now, pool, len(heard), split.updates, expected)
            mean = now.models[pool[0]].double() + noisy / behind
            shown.append(
                Reply(
                    id=members[0],
                    slot=pool[0],
                    vector=now.fleet.layout.after_noise(mean.float()),
                    size=max(1, round(behind)),
                )
            )
        if adaptive:
            share = self.noisy_share(now, short - len(replies) / 2, split.count, whole)
            CLIP.keep(now.memory, next_clip(clip, share, settings.quantile))
        self.account(now, noise, sampling, clip, pools)
        now.worked = tuple(reply.id for reply in replies)
        return sorted(shown, key=lambda reply: (reply.id, reply.slot))

    def noisy(self, now: Round, total: Tensor, model: tuple[int, int], noise: float, clip: float) -> Tensor:
        """The sum with noise: of this round alone, or with `bands` some of which later rounds take back."""
        rng = now.stream("private", model[1]) if now.fleet.simulated else None
        bands = self.plan.settings.bands
        if bands == 1:
            return gaussian(total, noise * clip, rng)
        if rng is None:
            raise UserError(
                f"private.bands is {bands}, which a simulation alone can have: the noise of earlier "
                f"rounds would lie in "
                "the server's folder; leave it out"
            )
        fresh = gaussian(torch.zeros_like(total), noise * clip, rng)
        return total + correlated(now, fresh, model[0], bands)

    def room(self, now: Round) -> float:  # noqa: ARG002
        """The share of the clip length that an update may take."""
        return 1.0

    def whole(self, expected: Mapping[Pool, float]) -> float:
        """How many clients all sums of the round are to have."""
        return sum(expected.values())

    def behind(
        self,
        now: Round,  # noqa: ARG002
        pool: Pool,
        heard: int,  # noqa: ARG002
        noise: float,  # noqa: ARG002
        expected: Mapping[Pool, float],
    ) -> float:
        """How many clients a sum is divided by."""
        return expected[pool]

    def pools(self, now: Round, replies: Sequence[Reply]) -> dict[Pool, list[int]]:
        """Who can be in which sum: everybody who is here, drawn or not, so that an empty sum shows nothing."""
        slots = {reply.id: reply.slot for reply in replies}
        one = len(now.models) == 1
        found: dict[Pool, list[int]] = {}
        for client in now.here:
            group = now.groups.get(client, -1)
            slot = 0 if one else slots.get(client, group)
            if slot >= 0:
                found.setdefault((slot, group if self.by_group else -1), []).append(client)
        return dict(sorted(found.items()))

    def expected(self, now: Round, pool: Pool, members: Sequence[int], sampling: Sampling) -> float:  # noqa: ARG002
        """How many clients a sum is divided by: of chance alone, or of who was chosen, never of who answered."""
        if sampling.kind == "poisson":
            return max(1.0, sampling.rate * len(self.plan.turn(now.number, members)))
        return float(max(1, sum(client in now.tasks for client in members)))

    def noisy_share(self, now: Round, short: float, scale: float, expected: float) -> float:
        """The share of short updates, from the noisy sum of b_k - 1/2."""
        if now.fleet.simulated:
            noisy = short + float(now.stream("private", "clip").normal(0.0, scale))
        else:
            noisy = float(gaussian(torch.tensor([short]), scale, None)[0])
        return noisy / expected + 0.5

    def book_unheard(self, now: Round) -> None:
        """What everybody may have lost in a round that a server of real sites did not live to write down."""
        if lost := self.plan.unheard(now):
            for client in {*now.fleet.members(), *now.seen}:
                now.fleet.ledger.lose(client, loss_of(lost.noise, lost.sampling))

    def account(
        self, now: Round, noise: float, sampling: Sampling, clip: float, pools: Mapping[Pool, Sequence[int]]
    ) -> None:
        """Books the round for everybody who could have been in it, and tells the report who stands behind what."""
        self.plan.book(now, noise, sampling)
        could = sorted({*now.fleet.members(), *now.seen})
        there = now.tasks if sampling.kind == "none" else self.plan.turn(now.number, could)
        for client in there:
            now.fleet.ledger.lose(client, loss_of(noise, sampling))
        now.notes["clients behind each model"] = {
            "model": [pool[0] for pool in pools],
            **({"group": [pool[1] for pool in pools]} if self.by_group else {}),
            "clients": [len(members) for members in pools.values()],
        }
        now.notes["noise on sums"] = {
            "noise (clip lengths)": [round(noise, 4)],
            "clip length": [round(clip, 6)],
            "sampling": [sampling.words()],
        }


def loss_of(noise: float, sampling: Sampling) -> Loss:
    """What a client loses in the sums of one round."""
    drawn = {"rate": sampling.rate, "chosen": sampling.chosen, "of": sampling.of}
    return Loss(what="updates", mechanism="sum", noise=noise, **drawn)  # type: ignore[arg-type]


def update(now: Round, reply: Reply) -> Tensor:
    """How far a client's row is from where it started."""
    assert reply.vector is not None
    return reply.vector - now.start_of(reply)
