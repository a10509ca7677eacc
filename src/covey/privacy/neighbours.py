"""Who shares masks and secrets with whom in a secure sum (SecAgg+, Bell et al., 2020).

All clients with all others is safest and costs most: shares grow with the number of clients, and the work of making and
combining them with its square. In a large sum each has k neighbours: the clients stand in a ring, in an order that
nobody knows beforehand, and everybody's neighbours are the k / 2 on either side. Any k others are then equally likely.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

HowMany = int | Literal["auto"]

EVERYBODY = 100  # clients up to which all are neighbours of all
SHARE = 0.2  # of the clients that may collude with the server, and that may leave in the middle of a round
SECRET_BITS = 40  # a client whose neighbours could unmask it is there with a chance of at most 2^-40
STAY_BITS = 20  # a sum that fails although no more than that share leave, with one of at most 2^-20


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Every client with its neighbours, itself included; and how many of these put a secret of it together."""

    of: Mapping[int, frozenset[int]]
    threshold: int

    def can_unmask(self, there: Collection[int], gone: Collection[int]) -> bool:
        """Whether enough neighbours are there of everybody whose masks are in the sum."""
        stayed = frozenset(there)
        return all(len(self.of[client] & stayed) >= self.threshold for client in (*there, *gone))


def neighbours_of(order: Sequence[int], neighbours: HowMany, stay: int) -> Neighbours:
    """The clients in a ring of that order; of a sum in which all know all, `stay` put a secret together.

    Where each has k < n - 1 neighbours, k / 2 + 2 do (itself counted): whoever has more than half of them left has
    one on either side, so that those who stay hang together, and no part of them can be summed up by itself.
    """
    clients = len(order)
    wanted = neighbours_for(clients) if neighbours == "auto" else neighbours + neighbours % 2
    if wanted >= clients - 1:
        return Neighbours(of=dict.fromkeys(order, frozenset(order)), threshold=stay)
    half = wanted // 2
    around = range(-half, half + 1)
    return Neighbours(
        of={client: frozenset(order[(i + j) % clients] for j in around) for i, client in enumerate(order)},
        threshold=half + 2,
    )


@lru_cache(maxsize=64)
def neighbours_for(clients: int) -> int:
    """The least even number of neighbours that is safe where a fifth collude, and where another fifth leave.

    Bell et al., section 3: of n clients, none may have a threshold of colluding neighbours, nor too few that stay; the
    number of them among k neighbours is hypergeometric, and n times its tail bounds the chance.
    """
    if clients <= EVERYBODY:
        return clients - 1
    from scipy.stats import hypergeom

    bad = int(SHARE * clients)
    for wanted in range(4, clients - 1, 2):
        half = wanted // 2
        unmasks = clients * hypergeom.sf(half + 1, clients - 1, bad, wanted)  # half + 2 collude
        fails = clients * hypergeom.sf(
            half - 2, clients - 1, bad, wanted
        )  # half - 1 leave, and half + 1 stay
        if unmasks <= 2.0**-SECRET_BITS and fails <= 2.0**-STAY_BITS:
            return wanted
    return clients - 1
