"""A client's side of secure aggregation (SecAgg+, Bell et al., 2020): of its update only a masked one leaves it.

Keys, shares and sealed letters are in `secure_keys.py`. A mask is the key stream of ChaCha20; Flower's SecAgg+ folds a
key of 256 bits into 32 for NumPy's generator, which can be tried out.
"""

import base64
import math
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Integers
from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.core.privacy_loss import Loss, What
from covey.errors import Refused, UserError
from covey.parts.steps.gaussian_noise import length
from covey.parts.steps.private import clipped, unmoved
from covey.privacy.secure_letters import SCALAR, both_commitments, commitment, opened, primitives, scalar_of
from covey.settings import ClipLength, Count, NotNegative, PartBelowOne, Range
from covey.training.rows import Layout

Masked = NDArray[np.uint32]
BITS = 20
NUMBER_LEVELS = 2**BITS  # whole numbers to a clip length
FEWEST_BITS = 8
MOST_TRIES = 5  # of one sum, each without those who lied in the one before
MOST_SUMS = 16  # of one round, tries not counted
LEAST_SHARE = (
    2.0  # whole numbers of noise of a client; fewer add up to less than the Gaussian that they are counted as
)
LARGEST = 2**31 - 1  # what a sum may be: beyond it, numbers of 32 bits begin again from the other end


# ---------------------------------------------------------------------------------------------- numbers


def quantised(update: Tensor, clip: float, levels: float = NUMBER_LEVELS) -> Integers:
    """The update, shortened to the clip length, in whole numbers of clip / levels.

    Towards zero, so that it gets no longer: a sum of whole numbers then needs no more noise than one of updates.
    """
    return np.trunc(clipped(update, clip).numpy() * (levels / clip)).astype(np.int64)


def bits_for(clients: int, noise: float) -> int:
    """How fine a sum of these can be, with noise in clip lengths, of which twelve deviations stay within 32 bits."""
    bits = min(BITS, int(math.log2(LARGEST / (clients + 12 * noise))))
    if bits < FEWEST_BITS:
        raise UserError(
            f"private.secure adds up {clients} clients with noise of {noise:.3g} clip lengths in numbers of 32 bits, "
            f"which leaves {bits} bits to a clip length; it takes {FEWEST_BITS}: let fewer participate in a round"
        )
    return bits


def to_ring(values: Integers) -> Masked:
    """Whole numbers modulo 2^32."""
    return (values & 0xFFFFFFFF).astype(np.uint32)


def from_ring(values: Masked) -> Integers:
    """The whole numbers from -2^31 to 2^31 - 1 that they stand for."""
    return values.view(np.int32).astype(np.int64)


def mask(key: bytes, count: int) -> Masked:
    """That many numbers of 32 bits: the key stream of ChaCha20 under a key that is used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * count))
    return np.frombuffer(stream, "<u4").astype(np.uint32)


def pair_mask(own: bytes, other: bytes, count: int, about: bytes = b"") -> Masked:
    """The mask that two clients share, from the private key of one and the public key of the other."""
    crypto = primitives()
    key = crypto.shared_key(crypto.private_key(own), crypto.public_key(other), about)
    return mask(base64.urlsafe_b64decode(key), count)


def signed_mask(mine: int, other: int, values: Masked) -> Masked:
    """Added by the one with the higher number and taken away by the other, so that a sum of both has none of it."""
    return values if mine > other else (~values + np.uint32(1)).astype(np.uint32)


def discrete_gaussian(count: int, scale: float, rng: np.random.Generator | None) -> Integers:
    """Whole numbers with a Gaussian distribution: OpenDP's, or in a simulation rounded ones from the seed."""
    if not scale:
        return np.zeros(count, np.int64)
    if rng is not None:
        return np.rint(rng.normal(0.0, scale, count)).astype(np.int64)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return np.asarray(dp.m.make_gaussian(*space, scale=scale)([0] * count), np.int64)


def as_array(block: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(block, np.uint8).copy()


def bytes_of_numbers(values: Any) -> bytes:
    return np.asarray(values, np.uint8).tobytes()


# ---------------------------------------------------------------------------------------------- the five questions


class AboutNoData(Step):
    """A question of the protocol: its answer says nothing about anybody's data."""

    about_data: ClassVar[bool] = False

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return 0.0


@step(kind="query.secure-keys")
class SecureKeys(AboutNoData):
    """Makes two pairs of keys for this round; the public ones are told."""

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        crypto, before = primitives(), client.state.get("secure", {})
        if before.get("round") != client.round:
            before = {}
        done = before.get("sums", 0) + bool(before.get("unmasked"))
        tries = 1 if not before or before.get("unmasked") else before["tries"] + 1
        if tries > MOST_TRIES or done >= MOST_SUMS:
            raise Refused(
                f"this client tries a sum at most {MOST_TRIES} times, and makes at most {MOST_SUMS} a round"
            )
        kept: dict[str, Any] = {"round": client.round, "tries": tries, "sums": done}
        for number in ("1", "2"):
            secret, public = crypto.key_pair()
            kept["sk" + number], kept["pk" + number] = secret.hex(), public.hex()
        client.state["secure"] = kept
        return Reply(id=client.id, stats={n: as_array(bytes.fromhex(kept[n])) for n in ("pk1", "pk2")})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        key = Stat(low=0, high=255, shape=(None,))
        return {"pk1": key, "pk2": key}


@step(kind="query.secure-shares")
class SecureShares(AboutNoData):
    """Shares the first private key and a seed among the neighbours, sealed for each of them.

    Args:
        threshold: how many of them can put a secret together.
    """

    threshold: Count

    def __call__(self, client: Client, task: Task) -> Reply:
        crypto, kept = primitives(), of_this_round(client)
        keys = {int(i): [bytes_of_numbers(k) for k in pair] for i, pair in task.args["keys"].items()}
        if [key.hex() for key in keys.get(client.id, [])] != [kept["pk1"], kept["pk2"]]:
            raise Refused("the server shows this client's own keys to others as something else")
        if len({key for pair in keys.values() for key in pair}) != 2 * len(keys):
            raise Refused("the server shows the same key twice")
        if len(keys) < max(3, self.threshold):
            raise Refused(f"{len(keys)} clients are too few to hide one; it takes {max(3, self.threshold)}")
        if 2 * self.threshold <= len(keys):
            raise Refused(
                f"{self.threshold} of {len(keys)} shares are too few: two halves could unmask a client"
            )
        seed = os.urandom(32)
        order = sorted(keys)
        seeds = crypto.shares_of(seed, self.threshold, len(order))
        secrets = crypto.shares_of(bytes.fromhex(kept["sk1"]), self.threshold, len(order))
        sealed, shares = [], {}
        committed = [
            both_commitments(client.id, other, pair)
            for other, pair in zip(order, zip(seeds, secrets, strict=True), strict=True)
        ]
        for other, seed_share, secret_share in zip(order, seeds, secrets, strict=True):
            if other == client.id:
                shares[str(other)] = [seed_share.hex(), secret_share.hex()]
                continue
            plain = crypto.letter(client.id, other, seed_share, secret_share)
            sealed.append(as_array(crypto.sealed(self.key_with(kept, keys[other][1]), plain)))
        public = {str(i): pair[0].hex() for i, pair in keys.items()}
        second = {str(i): pair[1].hex() for i, pair in keys.items()}
        client.state["secure"] = {
            **kept,
            "seed": seed.hex(),
            "shares": shares,
            "public": public,
            "second": second,
            "threshold": self.threshold,
        }
        whole = as_array(commitment(client.id, client.id, "seed", seed))
        stats = {"sealed": np.stack(sealed), "committed": np.stack(committed), "seed": whole}
        return Reply(id=client.id, stats=stats)

    @staticmethod
    def key_with(kept: Mapping[str, Any], other: bytes) -> bytes:
        """The key of messages between two clients."""
        crypto = primitives()
        own = crypto.private_key(bytes.fromhex(kept["sk2"]))
        key: bytes = crypto.shared_key(own, crypto.public_key(other))
        return key

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {
            "sealed": Stat(low=0, high=255, shape=(None, None)),
            "committed": Stat(low=0, high=255, shape=(None, 2, 32)),
            "seed": Stat(low=0, high=255, shape=(32,)),
        }


@step(kind="query.secure-open")
class SecureOpen(AboutNoData):
    """Opens the neighbours' letters, and says of each dealer whether its shares are those that it is bound to.

    Who blames one shows its private key for letters, so that the server can see for itself, and sends no numbers under
    the secrets of this try.
    """

    def __call__(self, client: Client, task: Task) -> Reply:
        kept = of_this_round(client)
        if "seed" not in kept or "opened" in kept:
            raise Refused("letters are opened once, after the keys were shared")
        shares, blames = dict(kept["shares"]), []
        for source in sorted(map(int, task.args["sealed"])):
            key = SecureShares.key_with(kept, bytes.fromhex(kept["second"][str(source)]))
            letter, bound = (task.args[name][str(source)] for name in ("sealed", "committed"))
            found = opened(key, bytes_of_numbers(letter), source, client.id, bound)
            blames.append(found is None)
            if found is not None:
                shares[str(source)] = [share.hex() for share in found]
        shown = np.zeros(SCALAR, np.uint8)
        if any(blames):
            shown = scalar_of(bytes.fromhex(kept["sk2"]))
            client.state["secure"] = {name: kept[name] for name in ("round", "tries", "sums")}
        elif len(shares) < kept["threshold"]:
            raise Refused("fewer clients shared their keys than can unmask the sum")
        else:
            client.state["secure"] = {**kept, "shares": shares, "opened": True}
        return Reply(id=client.id, stats={"blames": np.array(blames, np.uint8), "key": shown})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {
            "blames": Stat(low=0, high=1, shape=(None,)),
            "key": Stat(low=0, high=255, shape=(SCALAR,)),
        }


@step(kind="query.secure-update")
class SecureUpdate(Step):
    """The step, of whose update only whole numbers under masks leave the client; in a simulation, the numbers.

    They are the update in the row of the model that it is about, zeros in the rows of all others; then a number for
    each model, `counted` for that one; then +-`short` / 2, whether the update was short enough to count in full.

    Args:
        step: what the client does.
        clip: the longest update.
        share: standard deviation of the noise that the client adds, in whole numbers.
        bits: 2^bits whole numbers make a clip length.
        rows: how many models the sum is about, where clients choose theirs at home.
        counted: in clip lengths, what a choice is worth; with the update it is no longer than one. 0: not counted.
        short: in clip lengths, what a short update is worth beside all that. 0: not counted.
    """

    step: Step
    clip: ClipLength
    share: NotNegative = 0.0
    bits: Annotated[int, Range(1, 30)] = BITS
    rows: Count = 1
    counted: PartBelowOne = 0.0
    short: NotNegative = 0.0

    def __post_init__(self) -> None:
        if 0 < self.share < LEAST_SHARE:
            raise UserError(
                f"each client would add noise of {self.share:.3g} whole numbers to a secure sum, fewer than "
                f'{LEAST_SHARE:g}, which hide less than they are counted as: with private.noise_from = "clients" let '
                "fewer participate in a round, or give private.epsilon a smaller number"
            )

    @property
    def hides_choice(self) -> bool:
        """Whether which of several models the client chose is part of the sum."""
        return self.rows > 1

    @property
    def accounted(self) -> bool:
        """Whether the client's account counts it: what has no noise of the clients' own cannot be counted."""
        return self.share > 0

    @property
    def longest(self) -> float:
        """How far a client moves the sum at most, in whole numbers."""
        return float(2**self.bits * math.hypot(1.0, self.short / 2))

    @property
    def terms(self) -> bytes:
        """By which a client counts the noise of the others; masks of clients that were told others stay in the sum.

        Without noise of the clients nobody counts any.
        """
        numbers = (self.clip, self.share, self.bits, self.rows, self.counted, self.short)
        return " ".join(repr(float(number)) for number in numbers).encode() if self.share else b""

    def __call__(self, client: Client, task: Task) -> Reply:
        try:
            reply = self.step(client, task)
            update = update_in(reply, self.step, task, client.bench.layout)
        except Exception as error:
            reply, update = unmoved(client, task, error), torch.zeros(task.models.shape[1])
        values = self.numbers(update, reply.slot)
        rng = None if client.live else client.stream("noise share", "round", client.round)
        ring = to_ring(values + discrete_gaussian(len(values), self.share, rng))
        if client.live:
            if client.account is not None and self.share:
                client.account.lose(self.loss(of_this_round(client).get("threshold", 1)))
            ring = self.masked(client, ring)
        slot = reply.slot if self.rows == 1 else 0
        return Reply(id=client.id, slot=slot, size=1, stats={"numbers": ring.view(np.int32)})

    def numbers(self, update: Tensor, slot: int) -> Integers:
        """What the client adds, without noise."""
        levels, room = 2**self.bits, math.sqrt(1 - self.counted**2)
        # whatever a server calls its rows: a failure would tell the choice
        place = max(0, min(slot, self.rows - 1))
        rows = np.zeros((self.rows, len(update)), np.int64)
        rows[place] = quantised(update, room * self.clip, room * levels)
        parts = [rows.ravel()]
        if self.counted:
            chosen = np.zeros(self.rows, np.int64)
            chosen[place] = int(self.counted * levels)
            parts.append(chosen)
        if self.short:
            worth = int(self.short / 2 * levels)
            parts.append(np.array([worth if length(update) <= room * self.clip else -worth]))
        return np.concatenate(parts)

    def parted(self, total: Tensor) -> tuple[Tensor, Tensor, float]:
        """Of a sum in clip lengths: its rows, who chose each, and the sum of b - 1/2, b = 1 for a short update."""
        total, short = (total[:-1], float(total[-1]) / self.short) if self.short else (total, 0.0)
        values, chosen = (total[: -self.rows], total[-self.rows :]) if self.counted else (total, total[:0])
        return values.view(self.rows, -1), chosen / (self.counted or 1.0), short

    def loss(self, stay: int) -> Loss:
        """What the update costs: the sum has at least the noise of the clients that must stay to unmask it."""
        what: What = getattr(self.step, "told_as", "updates")
        return Loss(what=what, mechanism="sum", noise=self.share * stay**0.5 / self.longest)

    def masked(self, client: Client, ring: Masked) -> Masked:
        """The numbers under the client's own mask and those that it shares with its neighbours."""
        kept = of_this_round(client)
        if "opened" not in kept or "sent" in kept:
            raise Refused("a masked update is sent once in a round, after the shares were opened")
        shares = kept["shares"]
        ring = ring + mask(bytes.fromhex(kept["seed"]), len(ring))
        for other in shares:
            if int(other) != client.id:
                public = bytes.fromhex(kept["public"][other])
                shared = pair_mask(bytes.fromhex(kept["sk1"]), public, len(ring), self.terms)
                ring = ring + signed_mask(client.id, int(other), shared)
        client.state["secure"] = {**kept, "sent": True}
        return ring

    def expects(self, known: Known) -> dict[str, Stat]:
        columns = None if hasattr(self.step, "added") else known.row
        every = self.rows * columns + self.rows * bool(self.counted) + bool(self.short) if columns else None
        return {"numbers": Stat(low=-(2**31), high=2**31 - 1, whole=True, shape=(every,))}

    def work(self, train: int, test: int) -> float:
        return self.step.work(train, test)


@step(kind="query.secure-unmask")
class SecureUnmask(AboutNoData):
    """Gives its shares: of the seeds of those whose numbers arrived, and of the keys of those whose did not.

    Never both of one client: that would unmask it.
    """

    def __call__(self, client: Client, task: Task) -> Reply:
        kept = of_this_round(client)
        there, gone = ([int(i) for i in task.args[name]] for name in ("there", "gone"))
        shares = kept.get("shares", {})
        if "sent" not in kept or kept.get("unmasked"):
            raise Refused("shares are given once in a round, after the masked update")
        if set(there) & set(gone) or {str(i) for i in there + gone} - set(shares):
            raise Refused("the server asks for shares that nobody may have")
        if len(there) < kept["threshold"]:
            raise Refused(f"{len(there)} updates arrived; fewer than {kept['threshold']} are not unmasked")
        client.state["secure"] = {name: kept[name] for name in ("round", "tries", "sums")} | {
            "unmasked": True
        }
        return Reply(
            id=client.id,
            stats={
                "there": stacked(shares[str(i)][0] for i in there),
                "gone": stacked(shares[str(i)][1] for i in gone),
            },
        )

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        share = Stat(low=0, high=255, shape=(None, None))
        return {"there": share, "gone": share}


def update_in(reply: Reply, step: Step, task: Task, layout: Layout) -> Tensor:
    """What a client has to add to a sum: its update, or what the step says."""
    if hasattr(step, "added"):
        added: Tensor = step.added(reply)
        return added
    whole = step.unpacked(reply, task, layout)
    assert whole.vector is not None
    return whole.vector - task.models[task.slots.index(whole.slot)]


def of_this_round(client: Client) -> dict[str, Any]:
    """What the client keeps of the protocol; keys of another round are none."""
    kept: dict[str, Any] = client.state.get("secure", {})
    if kept.get("round") != client.round:
        raise Refused("this client has no keys for this round")
    return kept


def stacked(shares: Iterable[str]) -> NDArray[np.uint8]:
    """Shares of one length, one row each."""
    rows = [as_array(bytes.fromhex(share)) for share in shares]
    return np.stack(rows) if rows else np.zeros((0, 0), np.uint8)
