"""Client-level differential privacy: the method is shown noisy sums of clipped updates, and never a single one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core import Reply, Round, Step
from covey.core.privacy_loss import Loss
from covey.errors import SilentRoundError, UserError
from covey.parts.steps.gaussian_noise import gaussian
from covey.parts.steps.private import stays_at_home
from covey.privacy.accountant import Sampling
from covey.privacy.banded import correlated
from covey.privacy.clipping import Split, clipped_sum, next_clip
from covey.privacy.plan import CLIP, Plan
from covey.privacy.secure import FEWEST_IN_SUM, SecureSums, SpoiledSumError
from covey.privacy.secure_steps import SecureUpdate

Pool = tuple[int, int]  # a model's row, and a group (-1: everybody who trains that model)


@dataclass(kw_only=True, eq=False)
class RoundSums:
    """The sums of one round.

    pools: who can be in which; expected: how many are to be in it. noise: in clip lengths, as it is accounted. totals,
    counts: clipped updates added up, and how many; short: the sum of b - 1/2, b = 1 for a short update. has_noise: the
    clients' own. spoiled: why sums are missing.
    """

    pools: dict[Pool, list[int]]
    expected: dict[Pool, float]
    clip: float
    noise: float
    split: Split
    totals: dict[Pool, Tensor] = field(default_factory=dict)
    counts: dict[Pool, float] = field(default_factory=dict)
    short: float = 0.0
    worked: list[int] = field(default_factory=list)
    has_noise: bool = False
    spoiled: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """One reply for each model (and each group, where the method looks at groups): the mean update, with noise.

    w + (sum over the clients of min(1, C / ||u_k||) u_k + N(0, (z C)^2)) / m, u_k = w_k - w, and m how many clients
    were to come into the sum, which no data decide; without noise how many are in it. A client is in one sum of a
    round, so that all sums of the round together cost what one would. What a method makes of them costs nothing more.
    `secure`: how they are added up where the server may see no single update.
    """

    plan: Plan
    by_group: bool = False
    secure: SecureSums | None = None

    @property
    def evaluations(self) -> float | None:
        """Privacy loss of one evaluation at a client; None where such evaluations have no noise."""
        return self.plan.settings.evaluations

    def __call__(self, now: Round, step: Step) -> list[Reply]:
        settings, seen = self.plan.settings, self.secure is None
        replies = now.fleet.ask(step, now.tasks) if seen and now.tasks else []
        sampling = self.plan.sampling(now)
        if seen and now.tasks and not replies:
            if settings.has_noise and now.fleet.ledger.tries > 1:  # in a lost try somebody may have answered
                self.account(now, self.planned(now, replies, sampling), sampling)
            return []
        sums = self.planned(now, replies, sampling)
        if seen:
            self.add(now, replies, sums)
        else:
            self.add_securely(now, step, sums)
        shown = self.means(now, step, sums)
        if settings.clip_length == "adaptive":
            share = self.noisy_share(now, sums)
            CLIP.keep(now.memory, next_clip(sums.clip, share, settings.quantile))
        if settings.has_noise:
            self.account(now, sums, sampling)
        if not seen:
            note_secure(now, sums)
        now.worked = tuple(sorted(sums.worked))
        return sorted(shown, key=lambda reply: (reply.id, reply.slot))

    def planned(self, now: Round, replies: Sequence[Reply], sampling: Sampling) -> RoundSums:
        """Who can be in which sum, and how much noise each gets."""
        settings, noise = self.plan.settings, self.plan.noise(now, sampling)
        pools = self.pools(now, replies)
        expected = {pool: self.expected(now, pool, members, sampling) for pool, members in pools.items()}
        if settings.clip_length != "adaptive":
            split = Split(updates=noise, count=0.0)
            return RoundSums(
                pools=pools, expected=expected, clip=settings.clip_length, noise=noise, split=split
            )
        clip, split = CLIP.get(now.memory, settings.first_clip), Split.of(noise, self.whole(expected))
        return RoundSums(pools=pools, expected=expected, clip=float(clip), noise=noise, split=split)

    def add(self, now: Round, replies: Sequence[Reply], sums: RoundSums) -> None:
        """Adds up updates that the server sees."""
        sums.short, sums.worked = -len(replies) / 2, [reply.id for reply in replies]
        for pool, members in sums.pools.items():
            there = set(members)
            heard = [reply for reply in replies if reply.id in there and reply.slot == pool[0]]
            updates = [update(now, reply) for reply in heard]
            sums.totals[pool], few = clipped_sum(updates, self.room(now) * sums.clip, now.models.shape[1])
            sums.counts[pool] = float(len(heard))
            sums.short += few

    def add_securely(self, now: Round, step: Step, sums: RoundSums) -> None:
        """Has updates added up that the server does not see: each pool's, or all, where clients choose at home."""
        assert self.secure is not None
        split, rows = sums.split, self.rows(now)
        short = split.updates / split.count if split.count else 0.0
        counted = math.sqrt(1 - self.room(now) ** 2)
        ask = SecureUpdate(step=step, clip=sums.clip, rows=rows, counted=counted, short=short)
        for several in [list(sums.pools)] if rows > 1 else [[pool] for pool in sums.pools]:
            tasks = {i: now.tasks[i] for i in sums.pools[several[0]] if i in now.tasks}
            try:
                found = self.secure(now, ask, tasks, sums.noise)
            except SpoiledSumError as why:
                sums.spoiled.append(str(why))
                continue
            if found is None:
                continue
            values, chosen, few = ask.parted(found.values)
            counts = chosen.tolist() if rows > 1 else [float(len(found.there))]
            for pool, row, count in zip(several, values, counts, strict=True):
                sums.totals[pool], sums.counts[pool] = sums.clip * row, count
            sums.short += few
            sums.worked += found.there
            sums.has_noise = found.has_noise

    def means(self, now: Round, step: Step, sums: RoundSums) -> list[Reply]:
        """Each sum with noise, over how many clients stand behind it."""
        shown, home = [], stays_at_home(step, now.fleet.layout)
        for number, pool in enumerate(sums.pools):
            if pool not in sums.totals:
                continue
            noisy = self.noisy(now, sums, pool, number)
            if home is not None:
                noisy[home] = 0.0
            behind = self.behind(now, pool, sums)
            mean = now.models[pool[0]].double() + noisy / behind
            row = now.fleet.layout.after_noise(mean.float())
            first, size = sums.pools[pool][0], max(1, round(behind))
            shown.append(Reply(id=first, slot=pool[0], vector=row, size=size))
        return shown

    def noisy(self, now: Round, sums: RoundSums, pool: Pool, number: int) -> Tensor:
        """The sum with noise: of this round alone, or with `bands` some of which later rounds take back."""
        total, scale = sums.totals[pool], sums.split.updates * sums.clip
        if sums.has_noise or not scale:
            return total
        rng = now.stream("private", number) if now.fleet.simulated else None
        bands = self.plan.settings.bands
        if bands == 1:
            return gaussian(total, scale, rng)
        if rng is None:
            raise UserError(
                f"private.bands is {bands}, which a simulation alone can have: the noise of earlier rounds would lie "
                "in the server's folder; leave it out"
            )
        return total + correlated(now, gaussian(torch.zeros_like(total), scale, rng), pool[0], bands)

    def room(self, now: Round) -> float:  # noqa: ARG002
        """The share of the clip length that an update may take."""
        return 1.0

    def rows(self, now: Round) -> int:  # noqa: ARG002
        """Of how many models one sum has rows."""
        return 1

    def whole(self, expected: Mapping[Pool, float]) -> float:
        """How many clients all sums of the round are to have."""
        return sum(expected.values())

    def behind(self, now: Round, pool: Pool, sums: RoundSums) -> float:  # noqa: ARG002
        """How many clients a sum is divided by."""
        return sums.expected[pool] if sums.noise else sums.counts[pool]

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

    def noisy_share(self, now: Round, sums: RoundSums) -> float:
        """The share of short updates, from the noisy sum of b_k - 1/2."""
        found = torch.tensor([sums.short], dtype=torch.float64)
        if not sums.has_noise:
            rng = now.stream("private", "clip") if now.fleet.simulated else None
            found = gaussian(found, sums.split.count, rng)
        return float(found[0]) / self.whole(sums.expected) + 0.5

    def account(self, now: Round, sums: RoundSums, sampling: Sampling) -> None:
        """Books the round for everybody who could have been in it, and tells the report who stands behind what."""
        self.plan.book(now, sums.noise, sampling)
        could = sorted({*now.fleet.members(), *now.seen})
        known = sampling.kind == "none" and now.fleet.ledger.tries == 1  # whom a lost try asked is not
        there = now.tasks if known else self.plan.turn(now.number, could)
        for client in there:
            now.fleet.ledger.lose(client, loss_of(sums.noise, sampling))
        now.notes["clients behind each model"] = {
            "model": [pool[0] for pool in sums.pools],
            **({"group": [pool[1] for pool in sums.pools]} if self.by_group else {}),
            "clients": [len(members) for members in sums.pools.values()],
        }
        now.notes["noise on sums"] = {
            "noise (clip lengths)": [round(sums.noise, 4)],
            "clip length": [round(sums.clip, 6)],
            "sampling": [sampling.words()],
        }


def note_secure(now: Round, sums: RoundSums) -> None:
    """Says which sums there were; where there was none, the round says nothing."""
    now.notes["secure sums"] = {
        "model": [pool[0] for pool in sums.pools],
        "clients": [len(members) for members in sums.pools.values()],
    }
    if sums.spoiled:
        now.notes["secure sums left out"] = {"round": [now.number], "why": sums.spoiled}
    if sums.totals or not (now.tasks or sums.spoiled):
        return
    remedy = "; give method.per_round or private.least a larger number"
    why = now.fleet.ledger.why_in_round() or remedy
    few = f"no sum of {FEWEST_IN_SUM} clients or more could be made{why}"
    raise SilentRoundError(f"round {now.number}: {sums.spoiled[0] if sums.spoiled else few}")


def loss_of(noise: float, sampling: Sampling) -> Loss:
    """What a client loses in the sums of one round."""
    drawn = {"rate": sampling.rate, "chosen": sampling.chosen, "of": sampling.of}
    return Loss(what="updates", mechanism="sum", noise=noise, **drawn)  # type: ignore[arg-type]


def update(now: Round, reply: Reply) -> Tensor:
    """How far a client's row is from where it started."""
    assert reply.vector is not None
    return reply.vector - now.start_of(reply)
