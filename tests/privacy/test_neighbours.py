"""SecAgg+'s sparse graph: how many neighbours are enough, by exact counts; and that nobody is cut off."""

from math import comb

import numpy as np
import pytest

from covey.errors import UserError
from covey.privacy.neighbours import Neighbours, neighbours_for, neighbours_of
from covey.runs.config import resolve


def tail(clients: int, bad: int, drawn: int, least: int) -> float:
    """The chance that of `drawn` of the other clients at least so many are bad ones, counted out."""
    ways = sum(comb(bad, j) * comb(clients - 1 - bad, drawn - j) for j in range(least, min(bad, drawn) + 1))
    return ways / comb(clients - 1, drawn)


@pytest.mark.parametrize(("clients", "wanted"), [(101, 42), (200, 66), (1000, 112)])
def test_as_few_neighbours_as_are_safe(clients: int, wanted: int) -> None:
    """Nobody has half + 2 colluding neighbours but with 2^-40, and a sum fails over a fifth that leave with 2^-20."""
    assert neighbours_for(clients) == wanted

    def safe(k: int) -> bool:
        unmasked = clients * tail(clients, clients // 5, k, k // 2 + 2)
        failed = clients * tail(clients, clients // 5, k, k // 2 - 1)
        return unmasked <= 2**-40 and failed <= 2**-20

    assert safe(wanted)
    assert not safe(wanted - 2)


def test_up_to_a_hundred_clients_all_are_neighbours_of_all() -> None:
    for clients in (3, 50, 100):
        ring = neighbours_of(range(clients), "auto", stay=clients // 2 + 1)
        assert ring.threshold == clients // 2 + 1
        assert set(map(len, ring.of.values())) == {clients}


def test_a_ring_in_the_given_order() -> None:
    """Of 6, with 4 neighbours (3 count as 4): all but the one opposite."""
    order = [10, 11, 12, 13, 14, 15]
    for wanted in (3, 4):
        ring = neighbours_of(order, wanted, stay=4)
        assert ring.of[10] == {14, 15, 10, 11, 12}
        assert ring.threshold == 4
    assert neighbours_of(order, 5, stay=4).of[10] == set(order)


def test_a_sum_is_unmasked_where_everybody_has_enough_neighbours_left() -> None:
    ring = neighbours_of(range(12), 4, stay=8)
    assert ring.can_unmask([i for i in range(12) if i not in (3, 9)], [3, 9])
    assert not ring.can_unmask([i for i in range(12) if i not in (3, 4)], [3, 4])
    assert not ring.can_unmask([i for i in range(12) if i not in (3, 5)], [3, 5])  # 4 has three of five left


def test_those_who_can_be_unmasked_hang_together(rng) -> None:
    """Of 300 random sets that stay, none that passes falls into parts which could be summed up one by one."""
    passed = 0
    for _ in range(300):
        order = rng.permutation(30).tolist()
        ring = neighbours_of(order, 8, stay=16)
        there = sorted(rng.choice(30, size=int(rng.integers(18, 30)), replace=False).tolist())
        if ring.can_unmask(there, []):
            passed += 1
            assert len(reached(ring, there)) == len(there)
    assert passed > 20


def reached(ring: Neighbours, there: list[int]) -> set[int]:
    """Whom the first of them can reach over neighbours that are there."""
    found, new = {there[0]}, [there[0]]
    while new:
        new = [i for i in set().union(*(ring.of[j] for j in new)) if i in there and i not in found]
        found.update(new)
    return found


def test_any_others_are_equally_likely_to_be_neighbours(rng) -> None:
    counts = np.zeros(10)
    for _ in range(2000):
        ring = neighbours_of(rng.permutation(10).tolist(), 4, stay=6)
        counts[list(ring.of[0] - {0})] += 1
    assert counts[1:] / 2000 == pytest.approx(4 / 9, abs=0.05)


def test_too_few_neighbours_are_refused() -> None:
    with pytest.raises(UserError, match=r"private\.neighbours is 2"):
        resolve({"private": {"secure": True, "clip": 1.0, "neighbours": 2}})
