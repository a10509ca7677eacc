"""Who does not keep to the protocol of secure sums: found by what each is bound to, and named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from covey.core import Reply
from covey.privacy.neighbours import Neighbours
from covey.privacy.secure_letters import Which, commitment, key_of_scalar, opened, primitives
from covey.privacy.secure_steps import bytes_of_numbers

Keys = Mapping[int, tuple[bytes, bytes]]


class DishonestSites(Exception):  # noqa: N818
    """No sum can be made with these clients in it: who, and what each did."""

    def __init__(self, why: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"client {client}: {what}" for client, what in sorted(why.items())))
        self.why = dict(why)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealt:
    """What the clients dealt out: sealed letters and commitments, dealer -> holder -> ...; and of each whole seed."""

    letters: Mapping[int, Mapping[int, Any]]
    committed: Mapping[int, Mapping[int, Any]]
    seeds: Mapping[int, bytes]

    @classmethod
    def of(cls, replies: Sequence[Reply], ring: Neighbours) -> Self:
        """As it arrived; whose answer has not as many letters as neighbours is named."""
        letters, committed, seeds, why = {}, {}, {}, {}
        for reply in replies:
            holders = sorted(ring.of[reply.id])
            others = [holder for holder in holders if holder != reply.id]
            sealed = np.asarray(reply.stats["sealed"], np.uint8)
            bound = np.asarray(reply.stats["committed"], np.uint8)
            if len(sealed) != len(others) or bound.shape != (len(holders), 2, 32):
                why[reply.id] = "it did not deal a share to each of its neighbours"
                continue
            letters[reply.id] = dict(zip(others, sealed, strict=True))
            committed[reply.id] = dict(zip(holders, bound, strict=True))
            seeds[reply.id] = bytes_of_numbers(reply.stats["seed"])
        if why:
            raise DishonestSites(why)
        return cls(letters=letters, committed=committed, seeds=seeds)

    def to(self, holder: int) -> dict[str, dict[str, Any]]:
        """What a client is handed on: letters of its neighbours, and what these are bound to."""
        sources = [dealer for dealer, letters in self.letters.items() if holder in letters]
        return {
            "sealed": {str(dealer): self.letters[dealer][holder] for dealer in sources},
            "committed": {str(dealer): self.committed[dealer][holder] for dealer in sources},
        }


def judged(replies: Sequence[Reply], dealt: Dealt, keys: Keys) -> dict[int, str]:
    """Of those who blame a dealer and of those who are blamed, who lies.

    Who blames shows its private key for letters of this try, in which it sends no numbers; its letter can then be read.
    """
    crypto, why = primitives(), {}
    for reply in replies:
        sources = sorted(map(int, dealt.to(reply.id)["sealed"]))
        blames = np.asarray(reply.stats["blames"])
        if blames.shape != (len(sources),):
            why[reply.id] = "it did not say of each letter whether it is in order"
            continue
        for dealer in [source for source, blamed in zip(sources, blames, strict=True) if blamed]:
            try:
                own = key_of_scalar(reply.stats["key"])
                if crypto.public_bytes(own.public_key()) != keys[reply.id][1]:
                    raise ValueError
            except ValueError:
                why[reply.id] = "it blames another, and shows a key that is not its own"
                break
            between = crypto.shared_key(own, crypto.public_key(keys[dealer][1]))
            letter = bytes_of_numbers(dealt.letters[dealer][reply.id])
            if opened(between, letter, dealer, reply.id, dealt.committed[dealer][reply.id]) is None:
                why[dealer] = f"its letter to client {reply.id} does not hold the shares that it is bound to"
            else:
                why[reply.id] = f"it blames client {dealer}, whose letter is in order"
    return why


def true_shares(
    answers: Sequence[Reply], asked: Mapping[int, tuple[Sequence[int], Sequence[int]]], dealt: Dealt
) -> tuple[dict[int, list[bytes]], dict[int, str]]:
    """The shares of everybody's secret (of the seed of who is there, of the key of who is gone) that are those that
    were dealt, and who gave others."""
    found: dict[int, list[bytes]] = {}
    why: dict[int, str] = {}
    for reply in answers:
        told: list[tuple[int, bytes]] = []
        for name, which, owners in (
            ("there", "seed", asked[reply.id][0]),
            ("gone", "key", asked[reply.id][1]),
        ):
            shares = [bytes_of_numbers(share) for share in reply.stats[name]]
            if len(shares) != len(owners) or not all(
                is_true(dealt, owner, reply.id, which, share)  # type: ignore[arg-type]
                for owner, share in zip(owners, shares, strict=True)
            ):
                why[reply.id] = "it gave a share that is not the one that it was dealt"
                break
            told += zip(owners, shares, strict=True)
        else:
            for owner, share in told:
                found.setdefault(owner, []).append(share)
    return found, why


def is_true(dealt: Dealt, dealer: int, holder: int, which: Which, share: bytes) -> bool:
    """Whether the share is the one that its dealer is bound to."""
    row = dealt.committed[dealer][holder][0 if which == "seed" else 1]
    return commitment(dealer, holder, which, share) == bytes_of_numbers(row)


def secret(owner: int, shares: Sequence[bytes], which: Which, dealt: Dealt, keys: Keys) -> bytes:
    """The secret of these shares, if it is the one that the dealer is bound to: the shares are its own word."""
    crypto = primitives()
    try:
        found: bytes = crypto.secret_of(list(shares))
        if which == "seed":
            right = commitment(owner, owner, "seed", found) == dealt.seeds[owner]
        else:
            public = crypto.private_key(found).public_key()
            right = crypto.public_bytes(public) == keys[owner][0]
    except Exception:  # whatever a stranger dealt
        right = False
    if not right:
        raise DishonestSites({owner: "the shares that it dealt do not fit together"})
    return found
