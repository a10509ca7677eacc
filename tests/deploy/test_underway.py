"""Asynchronous methods over sites: who is waited for, who stays under way, and the same bits as in a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from covey.core.round import Task, run_rounds
from covey.deploy.transport import Response
from covey.methods.stale import fedbuff
from covey.parts.steps import Train
from tests.deploy.sites_by_hand import Hand, deployed, simulated, sites

TRAIN = Train(lr=0.1, epochs=1)


@dataclass
class Slow(Hand):
    """Answers of the nodes in `held` are kept back."""

    held: set[int] = field(default_factory=set)
    of: dict[str, int] = field(default_factory=dict)

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        numbers = super().send(kind, blocks, seconds)
        self.of |= numbers
        return numbers

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        there = [number for number in numbers if self.of.get(number) not in self.held]
        return super().collect(there, most=most, until=until)


def tasks_for(fleet, ids):  # type: ignore[no-untyped-def]
    return dict.fromkeys(ids, Task(models=fleet.start()[None], slots=(0,)))


def test_a_buffer_of_everybody_has_the_bits_of_a_simulation() -> None:
    method = fedbuff(TRAIN, at_once=4, buffer=4)
    over_sites = run_rounds(method, deployed(Hand(sites())), rounds=2)
    assert torch.equal(over_sites.models, run_rounds(method, simulated(), rounds=2).models)


def test_who_is_slow_stays_under_way_and_counts_in_a_later_round() -> None:
    transport = Slow(sites())
    fleet = deployed(transport, deadline=60.0)
    here = fleet.begin(1)
    transport.held.add(102)
    slow = next(i for i, site in fleet.registry.sites.items() if site.node == 102)
    replies, _, sent = fleet.arrivals(TRAIN, tasks_for(fleet, here), 3)
    assert [reply.id for reply in replies] == [i for i in here if i != slow]
    assert set(sent.values()) == {1}
    assert list(fleet.underway) == [slow]
    free = fleet.begin(2)
    assert slow not in free
    assert slow in fleet.members()
    transport.held.clear()
    replies, tasks, sent = fleet.arrivals(TRAIN, {}, 1)
    assert [reply.id for reply in replies] == list(tasks) == [slow]
    assert sent == {slow: 1}
    assert list(fleet.underway) == []
    assert fleet.ledger.cost.messages == 8  # one each way for each of the four, however late


def test_more_answers_than_asked_for_wait_for_the_next_round() -> None:
    fleet = deployed(Hand(sites()), deadline=60.0)
    here = fleet.begin(1)
    first, _, _ = fleet.arrivals(TRAIN, tasks_for(fleet, here), 3)
    assert (len(first), len(fleet.underway)) == (3, 1)
    fleet.begin(2)
    last, _, sent = fleet.arrivals(TRAIN, {}, 1)
    assert {reply.id for reply in [*first, *last]} == set(here)
    assert list(sent.values()) == [1]


def test_who_does_not_answer_in_time_is_lost() -> None:
    transport = Slow(sites())
    fleet = deployed(transport, deadline=0.3)
    here = fleet.begin(1)
    transport.held.add(100)
    replies, _, _ = fleet.arrivals(TRAIN, tasks_for(fleet, here), 4)
    assert len(replies) == 3
    assert fleet.ledger.lost == 1
    assert list(fleet.underway) == []
    assert "no reply in 0.3 s" in fleet.ledger.examples("lost")[0].reason
