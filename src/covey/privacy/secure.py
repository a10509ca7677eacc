"""The server's side of secure aggregation: of every model's clients it learns the sum of their whole numbers, no more.

In a simulation the same whole numbers are added up without masks, so that both give bit-identical results.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Integers
from covey.core import Fleet, Key, Reply, Round, Task
from covey.errors import RunError, UserError
from covey.parts.steps.gaussian_noise import length
from covey.privacy.neighbours import HowMany, Neighbours, neighbours_of
from covey.privacy.secure_letters import primitives
from covey.privacy.secure_liars import Dealt, DishonestSites, judged, secret, true_shares
from covey.privacy.secure_steps import (
    Masked,
    SecureKeys,
    SecureOpen,
    SecureShares,
    SecureUnmask,
    SecureUpdate,
    as_array,
    bits_for,
    bytes_of_numbers,
    from_ring,
    mask,
    pair_mask,
    signed_mask,
    to_ring,
)
from covey.privacy.settings import Private
from covey.streams import stream

LIARS: Key[list[int]] = Key("private.liars")  # who is asked for no further secure sum
FEWEST_IN_SUM = 3  # clients in a sum: of two, each knows the other's


class SpoiledSumError(Exception):
    """Why a sum is left out of its round."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SecureTotal:
    """A sum in clip lengths, and who is in it; `has_noise`: the clients' shares of it."""

    values: Tensor
    there: list[int]
    update: SecureUpdate
    has_noise: bool


@dataclass(frozen=True, kw_only=True)
class SecureSums:
    """Sums of whole numbers that are seen as sums only. A sum of fewer than three is left out: it hides nobody.

    `threshold`: the share of the clients of a sum that must stay to its end.
    """

    settings: Private
    threshold: float = 0.67

    def __call__(
        self, now: Round, update: SecureUpdate, tasks: Mapping[int, Task], noise: float
    ) -> SecureTotal | None:
        """The sum of what the clients of these tasks add; None where too few of them stayed to its end."""
        settings, out = self.settings, LIARS.get(now.memory, [])
        asked = {i: task for i, task in tasks.items() if i not in out}
        add = plain_sum if now.fleet.simulated else masked_sum
        while len(asked) >= FEWEST_IN_SUM:
            stay = stays(len(asked), self.threshold)
            shared = settings.noise_from == "clients"
            most = noise * (len(asked) / stay) ** 0.5 if shared else noise
            update = replace(update, bits=bits_for(len(asked), most))
            update = replace(update, share=noise * update.longest / stay**0.5 if shared else 0.0)
            try:
                found = add(now.fleet, update, asked, stay, settings.neighbours)
            except DishonestSites as liars:  # once more, without them
                put_out(now, liars)
                asked = {i: task for i, task in asked.items() if i not in liars.why}
                if len(asked) < FEWEST_IN_SUM:
                    raise SpoiledSumError(f"no sum can be made without those who lied ({liars})") from liars
                continue
            except (UserError, RunError):
                raise
            except Exception as error:  # whatever else a stranger sent
                raise SpoiledSumError(f"no sum can be made ({type(error).__name__}: {error})") from error
            if found is None:
                return None
            total, there = found
            values = torch.from_numpy(total).double()
            if (limit := longest_sum(len(there), update, len(values))) < length(values):
                raise SpoiledSumError(
                    f"the sum of {len(there)} updates is {length(values) / limit:.3g} times too long: one of its "
                    "clients does not keep to the protocol, and under masks nobody can see whose numbers they are; "
                    "without private.secure it is refused and named"
                )
            return SecureTotal(
                values=values / 2**update.bits, there=there, update=update, has_noise=update.share > 0
            )
        return None


def longest_sum(clients: int, update: SecureUpdate, count: int) -> float:
    """How long the sum of that many updates can be, with twice the usual length of their noise."""
    return clients * update.longest + 2 * update.share * math.sqrt(clients * count)


def stays(clients: int, threshold: float) -> int:
    """How many of them must stay: more than half, so that no two parts can each unmask somebody."""
    return max(FEWEST_IN_SUM, clients // 2 + 1, round(threshold * clients))


def plain_sum(
    fleet: Fleet, update: SecureUpdate, tasks: Mapping[int, Task], stay: int, neighbours: HowMany = "auto"
) -> tuple[Integers, list[int]] | None:
    """What the protocol adds up to, where everybody's data lie in one process."""
    order = stream(fleet.seed, "secure", "round", getattr(fleet, "round", 0)).permutation(sorted(tasks))
    ring = neighbours_of(order.tolist(), neighbours, stay)
    arrived = numbers_in(fleet.ask(update, tasks))
    there = sorted(arrived)
    if len(there) < stay or not ring.can_unmask(there, set(tasks) - set(there)):
        return None
    return from_ring(added(list(arrived.values()))), there


def put_out(now: Round, liars: DishonestSites) -> None:
    """Names them, and asks them for no further sum of this run."""
    for client, reason in liars.why.items():
        now.fleet.ledger.note_refusal(client, kind=SecureUpdate.kind, round=now.number, reason=reason)
    LIARS.keep(now.memory, sorted({*LIARS.get(now.memory, []), *liars.why}))
    now.notes["clients put out of secure sums"] = {"client": LIARS.of(now.memory)}


def masked_sum(
    fleet: Fleet, update: SecureUpdate, tasks: Mapping[int, Task], stay: int, neighbours: HowMany = "auto"
) -> tuple[Integers, list[int]] | None:
    """The five questions of SecAgg+ with commitments; None where too few stay.

    A client that leaves after the shares is unmasked by the others. One that lies is named in `DishonestSites` where
    the sum cannot be made, and in the ledger where it can: enough others have shares that are true.
    """
    nothing = Task()
    keys = {
        reply.id: (bytes_of_numbers(reply.stats["pk1"]), bytes_of_numbers(reply.stats["pk2"]))
        for reply in fleet.ask(SecureKeys(), dict.fromkeys(tasks, nothing))
    }
    keys = {i: pair for i, pair in keys.items() if are_keys(pair, i, fleet)}
    if len(keys) < stay:
        return None
    order = sorted(keys)
    secrets.SystemRandom().shuffle(order)  # sites know the run's seed
    ring = neighbours_of(order, neighbours, stay)
    told = {i: [as_array(key) for key in pair] for i, pair in keys.items()}
    shared = fleet.ask(
        SecureShares(threshold=ring.threshold),
        {i: Task(args={"keys": {str(j): told[j] for j in sorted(ring.of[i])}}) for i in keys},
    )
    if len(shared) < stay:
        return None
    dealt = Dealt.of(shared, ring)
    read = fleet.ask(SecureOpen(), {reply.id: Task(args=dealt.to(reply.id)) for reply in shared})
    if liars := judged(read, dealt, keys):
        raise DishonestSites(liars)
    if len(read) < stay:
        return None
    arrived = numbers_in(fleet.ask(update, {r.id: tasks[r.id] for r in read}))
    there, gone = sorted(arrived), sorted({reply.id for reply in shared} - set(arrived))
    if len(there) < stay or not ring.can_unmask(there, gone):
        return None
    asked = {i: ([j for j in there if j in ring.of[i]], [j for j in gone if j in ring.of[i]]) for i in there}
    answers = fleet.ask(
        SecureUnmask(), {i: Task(args={"there": mine, "gone": lost}) for i, (mine, lost) in asked.items()}
    )
    shares, liars = true_shares(answers, asked, dealt)
    if any(len(shares.get(i, [])) < ring.threshold for i in (*there, *gone)):
        if liars:
            raise DishonestSites(liars)
        return None
    for client, reason in liars.items():
        fleet.ledger.note_refusal(
            client, kind=SecureUnmask.kind, round=getattr(fleet, "round", 0), reason=reason
        )
    total = added(list(arrived.values()))
    return from_ring(unmasked(total, shares, there, gone, keys, ring, dealt, update.terms)), there


def are_keys(pair: tuple[bytes, bytes], client: int, fleet: Fleet) -> bool:
    """Whether these are public keys; with any other bytes every neighbour would fail over them."""
    try:
        for key in pair:
            primitives().public_key(key)
    except Exception as error:
        why = f"its keys cannot be read ({type(error).__name__})"
        fleet.ledger.note_refusal(client, kind=SecureKeys.kind, round=getattr(fleet, "round", 0), reason=why)
        return False
    return True


def unmasked(
    total: Masked,
    shares: Mapping[int, Sequence[bytes]],
    there: Sequence[int],
    gone: Sequence[int],
    keys: Mapping[int, tuple[bytes, bytes]],
    ring: Neighbours,
    dealt: Dealt,
    terms: bytes,
) -> Masked:
    """The sum without the masks: of who is there their own, of who is gone those that it shared with its neighbours."""
    count = len(total)
    for client in there:
        seed = secret(client, shares[client][: ring.threshold], "seed", dealt, keys)
        total = total - mask(seed, count)
    for client in gone:
        key = secret(client, shares[client][: ring.threshold], "key", dealt, keys)
        for other in ring.of[client].intersection(there):
            total = total - signed_mask(other, client, pair_mask(key, keys[other][0], count, terms))
    return total


def added(rows: Sequence[Masked]) -> Masked:
    """The sum modulo 2^32."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


def numbers_in(replies: Sequence[Reply]) -> dict[int, Masked]:
    """Everybody's numbers, as they came; who sent more or fewer of them than most is not there."""
    found = {reply.id: np.asarray(reply.stats["numbers"]).astype(np.int64) for reply in replies}
    lengths = [len(one) for one in found.values()]
    usual = max(set(lengths), key=lengths.count, default=0)
    return {client: to_ring(one) for client, one in found.items() if len(one) == usual}
