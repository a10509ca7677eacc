"""Who is there: numbers, greetings, sites that are left out, gone or late, without a network."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import covey
from covey.core.codec import from_bytes, to_bytes
from covey.core.round import Task, run_rounds
from covey.data import from_tensors, load
from covey.deploy.site import Site
from covey.deploy.site_registry import BACK, ClientNumbers
from covey.deploy.status import BETWEEN, Status
from covey.deploy.transport import Response
from covey.parts.steps import Train
from covey.testing import check_toml
from lanes import LanesError
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites


def test_numbers_come_from_keys_where_there_are_keys() -> None:
    transport = Hand(sites(), keys={100: "d", 101: "c", 102: "b", 103: "unknown"})
    fleet = deployed(transport, names=ClientNumbers({"b": 0, "c": 1, "d": 2}), least=3)
    assert fleet.begin(1) == [0, 1, 2]
    assert {site.client: site.name for site in fleet.registry.sites.values()} == {
        0: "site-2",
        1: "site-1",
        2: "site-0",
    }


def test_without_keys_numbers_follow_the_names_whoever_came_first() -> None:
    backwards = {node: sites()[103 - node + 100] for node in range(100, 104)}
    fleet = deployed(Hand(backwards))
    assert fleet.begin(1) == [0, 1, 2, 3]
    assert {site.client: site.name for site in fleet.registry.sites.values()} == {
        i: f"site-{i}" for i in range(4)
    }
    names = ClientNumbers({})
    for name in ("b10", "b9", "a"):
        names.number("", name)
    assert names.settle() == {0: 2, 1: 1, 2: 0}
    assert names.number("", "an unseen client") == 3
    assert names.settle() == {}


def test_a_site_that_does_not_answer_is_lost_at_the_deadline_and_welcome_later() -> None:
    transport = Hand(sites())
    fleet = deployed(transport)
    method = check_toml("fedavg", {"per_round": CLIENTS})
    here: list[list[int]] = []

    def watch(end: Any) -> None:
        here.append(list(fleet.here))
        transport.away = {102} if end.state.round == 1 else set()

    run_rounds(method, fleet, rounds=4, watchers=[watch])
    assert here == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert fleet.ledger.lost == 1
    assert fleet.ledger.last_problem() == "Client 2 was lost in train.sgd, round 2: no reply in 0.5 s"
    assert fleet.ledger.clock >= 0.5  # the waiting is in the books


def test_a_quiet_site_holds_up_no_later_round() -> None:
    transport = Hand(sites())
    fleet = deployed(transport)
    assert len(fleet.begin(1)) == CLIENTS
    transport.away = {102}
    task = Task(models=torch.zeros(1, 4810), slots=(0,))
    assert [r.id for r in fleet.ask(Train(lr=0.1), dict.fromkeys(range(4), task))] == [0, 1, 3]
    assert [r.id for r in fleet.ask(Train(lr=0.1), dict.fromkeys(range(4), task))] == [0, 1, 3]
    assert fleet.ledger.last_problem().endswith("it is not connected")


def test_an_unseen_client_is_described_and_served() -> None:
    everybody = sites()
    transport = Hand({node: site for node, site in everybody.items() if node != 103})
    fleet = deployed(transport, least=3)
    method = check_toml("cbcc", {"per_round": 3})

    def watch(end: Any) -> None:
        transport.sites = everybody

    state = run_rounds(method, fleet, rounds=3, watchers=[watch])
    assert state.seen == (0, 1, 2, 3)
    assert 3 in state.groups


def test_a_site_that_is_left_out_is_told_of_once_and_asked_again_seldom() -> None:
    transport = Hand(sites(), keys={100: "a", 101: "b", 102: "c", 103: "unknown"})
    said: list[str] = []
    fleet = deployed(transport, names=ClientNumbers({"a": 0, "b": 1, "c": 2}), least=3, say=said.append)
    for number in range(1, 6):
        assert fleet.begin(number) == [0, 1, 2]
    assert [line for line in said if "left out" in line] == [
        "site site-3 is left out for now: neither its key nor its name is known"
    ]
    assert transport.kinds.count("query.hello") == 4  # one per site


def test_a_site_learns_why_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.deploy.site_registry.AGAIN", 0.0)
    heard: list[str] = []
    digits = load("digits")
    rotated = from_tensors(digits.x, digits.y, classes=digits.classes[::-1])
    transport = Hand({**sites(), 103: Site(rotated, name="site-3", say=heard.append)})
    fleet = deployed(transport, least=3)
    for number in (1, 2, 3):
        assert fleet.begin(number) == [0, 1, 2]
    why = "its classes have other names than the server's, or another order"
    assert heard == [f"the server leaves this site out: {why}"]


def test_a_site_that_comes_back_mended_is_not_told_what_was_wrong_before() -> None:
    heard: list[str] = []
    digits = load("digits")
    rotated = from_tensors(digits.x, digits.y, classes=digits.classes[::-1])
    everybody = sites(say=heard.append)
    transport = Hand({**everybody, 103: Site(rotated, name="site-3")})
    fleet = deployed(transport, least=3)
    assert fleet.begin(1) == [0, 1, 2]
    transport.sites = {node: site for node, site in everybody.items() if node != 103}
    assert fleet.begin(2) == [0, 1, 2]
    transport.sites = everybody
    assert fleet.begin(3) == [0, 1, 2, 3]  # at once
    assert heard == []


def test_sites_compile_the_kernels_when_they_are_greeted_and_not_within_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    monkeypatch.setattr(Site, "make_ready_for_lanes", lambda site: built.append(site.name))
    fleet = deployed(Hand(sites()))
    fleet.registry.spec = replace(SPEC, lanes=True)
    fleet.begin(1)
    assert sorted(built) == [f"site-{i}" for i in range(4)]
    deployed(Hand(sites())).begin(1)  # PyTorch trains: there is nothing to compile
    assert len(built) == 4


def test_a_site_that_cannot_compile_says_so_when_it_is_asked_to_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba", reason="no numba: the lanes need it")

    def broken(*_: object) -> None:
        raise LanesError("no compiler")

    monkeypatch.setattr("covey.training.bench.lanes_bench.ensure_built", broken)
    hello = {"covey": covey.__version__, "hello": True, "lanes": True}
    assert from_bytes(sites()[100].answer(to_bytes(hello)))["name"] == "site-0"


def test_a_site_that_refuses_the_same_again_and_again_says_so_once() -> None:
    said: list[str] = []
    site = sites(say=said.append)[100]
    for block in [one_request(round="first")] * 3 + [one_request(), one_request(round="first")]:
        site.answer(block)
    assert [line for line in said if line.startswith("refused")] == [said[0], said[-1]]


def test_a_site_that_was_gone_when_it_was_greeted_is_greeted_at_once_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.deploy.site_registry.HELLO_SECONDS", 0.3)
    transport = Hand(sites())
    gone = {node: site for node, site in transport.sites.items() if node != 103}
    fleet = deployed(transport, least=3)
    transport.away = {103}  # it is on the list of nodes, and dead
    assert fleet.begin(1) == [0, 1, 2]
    (number,) = fleet.registry.greeted
    transport.answers[number] = Response(error="it is not connected any more")
    everybody, transport.sites = transport.sites, gone
    assert fleet.begin(2) == [0, 1, 2]
    transport.sites, transport.away = everybody, set()
    assert fleet.begin(3) == [0, 1, 2, 3]


def test_of_two_sites_with_one_name_the_first_has_the_seat_until_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.deploy.site_registry.AGAIN", 0.0)
    first, second = sites()[100], sites()[100]
    transport = Hand({100: first})
    fleet = deployed(transport, least=1)
    fleet.begin(1)
    transport.sites = {100: first, 200: second}
    for number in (2, 3):
        assert fleet.begin(number) == [0]
        assert fleet.registry.sites[0].node == 100
    transport.sites = {200: second}
    assert fleet.begin(4) == [0]
    assert fleet.registry.sites[0].node == 200


class Listed(dict[str, int]):
    """Client numbers by key, and names, as the list of keys has them."""

    def names(self) -> dict[str, str]:
        return {key: f"hospital-{number}" for key, number in self.items()}


def test_a_site_is_called_what_its_key_is_called_and_not_what_it_calls_itself() -> None:
    """Otherwise one that may join could do harm in another's name."""
    said: list[str] = []
    made = sites()
    made[103].name = "hospital-0"
    transport = Hand(made, keys={100 + i: f"key-{i}" for i in range(4)})
    names = ClientNumbers(Listed({f"key-{i}": i for i in range(4)}))
    fleet = deployed(transport, names=names, say=said.append)
    assert fleet.begin(1) == [0, 1, 2, 3]
    assert "site hospital-3 is here as client 3" in said
    assert fleet.info["names"] == {str(i): f"hospital-{i}" for i in range(4)}
    assert [site["name"] for site in fleet.status.snapshot()["sites"]] == [f"hospital-{i}" for i in range(4)]


def test_a_killed_site_is_waited_for_some_seconds_and_then_not_counted_as_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SuperLink holds it to be there for a minute; its connections at the open port ended with it."""
    keys = {100: "a", 101: "b", 102: "c", 103: "d"}
    listed = {key: (f"site-{number}", number) for number, key in enumerate("abcd")}
    now = [1000.0]
    status = Status(lambda: listed, clock=lambda: now[0])
    fleet = deployed(
        Hand(sites(), keys=keys),
        names=ClientNumbers({key: one[1] for key, one in listed.items()}),
        status=status,
    )
    assert fleet.begin(1) == [0, 1, 2, 3]
    status.connections("c", 0)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("covey.deploy.site_registry.time.sleep", sleep)
    now[0] += BETWEEN + 1
    assert fleet.begin(2) == [0, 1, 3]
    assert sum(waited) == pytest.approx(BACK - BETWEEN - 1, abs=0.5)
    status.connections("c", 1)
    assert fleet.begin(3) == [0, 1, 2, 3]
    status.connections("c", 0)
    now[0] += BETWEEN + 1
    monkeypatch.setattr(
        "covey.deploy.site_registry.time.sleep", lambda _: status.connections("c", 1)
    )  # it opens another one
    assert fleet.begin(4) == [0, 1, 2, 3]
