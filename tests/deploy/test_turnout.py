"""A round that too few sites participate in, and a run in which all refuse: a failure, with who and why."""

from pathlib import Path
from typing import Any

import pytest

from covey.core.round import run_rounds
from covey.deploy.audit import checked_lines
from covey.deploy.outcomes import Turnout
from covey.deploy.run import site_fleet
from covey.deploy.status import Status
from covey.errors import RunError, UserError
from covey.methods.baselines import fedavg
from covey.methods.covey import covey
from covey.parts.steps import Train
from covey.privacy.apply import made_private
from covey.privacy.settings import Private
from covey.runs.config import resolve
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites

TRAIN = Train(epochs=1, lr=0.1)


def test_objections_name_everybody_by_reason() -> None:
    turnout = Turnout(quorum=2)
    for client, name in enumerate("abcd"):
        assert turnout.note(client, name, "the budget is spent." if client > 1 else "") == (client > 1)
    turnout.note_training([0, 1, 2, 3, -1], [0, 1])
    assert turnout.objection() == ""
    turnout.open()
    assert not turnout.note(2, "c", "the budget is spent.")  # that is no news
    turnout.note(3, "d", "the budget is spent.")
    turnout.note(0, "a", "")
    turnout.note(1, "b", "")
    turnout.note_training([0, 1, 2, 3], [0])
    assert turnout.objection() == (
        "1 of 4 sites that were asked trained, and sites.quorum is 2: c, d refused: the budget is spent; b did not "
        "answer; covey serve --resume continues when that has changed"
    )
    turnout.open()
    turnout.note(0, "a", "")
    turnout.note_training([0], [0])  # a method may ask fewer than that
    assert turnout.objection() == ""


def test_a_run_whose_sites_have_all_spent_their_budgets_ends_as_a_failure(tmp_path: Path) -> None:
    """In round 2, and not after patience is out as a success of which the last rounds trained nobody."""
    pytest.importorskip("opendp")
    pytest.importorskip("dp_accounting")
    said: list[str] = []
    status = Status(log=tmp_path / "audit.jsonl")
    fleet = deployed(Hand(sites(tmp_path, budget=1.0)), say=said.append, status=status)
    method = made_private(
        fedavg(TRAIN, per_round=CLIENTS),
        Private(level="local", noise=10.0, clip=0.5),
        clients=CLIENTS,
        rounds=4,
    )
    with pytest.raises(
        RunError, match=r"0 of 4 sites that were asked trained: site-0, site-1, site-2, site-3 ref"
    ):
        run_rounds(method, fleet, rounds=4)
    (why,) = {site["why"] for site in status.snapshot()["sites"]}
    assert why.startswith("an update is refused")
    assert sum(f"site site-0 refused: {why}" in line for line in said) == 1
    refused = [
        line.facts for line in checked_lines(tmp_path / "audit.jsonl") if line.facts["event"] == "refused"
    ]
    assert [line["why"] for line in refused if line["site"] == "site-0"] == [why]


def test_the_cause_is_named_where_a_method_can_choose_nobody() -> None:
    """Portraits are refused by a budget: the method has nobody to group, and that is not its mistake."""
    fleet = deployed(Hand(sites(budget=3.0)))
    with pytest.raises(RunError, match=r"site-3 refused: query\.\S+ has no privacy loss that can be counted"):
        run_rounds(covey(TRAIN, per_round=CLIENTS), fleet, rounds=2)


def test_the_cause_is_named_where_no_secure_sum_can_be_made() -> None:
    pytest.importorskip("flwr")
    fleet = deployed(Hand(sites(budget=3.0)))
    method = made_private(
        fedavg(TRAIN, per_round=CLIENTS), Private(secure=True, clip=0.5), clients=CLIENTS, rounds=2
    )
    with pytest.raises(RunError, match=r"site-3 refused: train\.sgd has no privacy loss that can be"):
        run_rounds(method, fleet, rounds=2)


def test_a_round_below_the_quorum_is_not_made() -> None:
    hand = Hand(sites())
    fleet = deployed(hand, turnout=Turnout(quorum=3))
    method = fedavg(TRAIN, per_round=CLIENTS)
    state = run_rounds(method, fleet, rounds=1)
    hand.away = {100, 101}
    with pytest.raises(
        RunError, match=r"round 2: 2 of 4 .* sites.quorum is 3: site-0, site-1 did not answer"
    ):
        run_rounds(method, fleet, rounds=3, state=state)


def test_a_round_waits_for_its_quorum() -> None:
    hand = Hand(sites())
    fleet = deployed(hand, turnout=Turnout(quorum=3), patience=0.0)
    state = run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=1)
    hand.sites = {node: site for node, site in hand.sites.items() if node > 101}
    with pytest.raises(RunError, match="round 2: 2 of 3 sites came in 0 s"):
        run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=2, state=state)


def test_without_a_quorum_a_round_counts_with_whoever_answers() -> None:
    hand = Hand(sites(), away={100, 101, 102})
    state = run_rounds(fedavg(TRAIN, per_round=CLIENTS), deployed(hand, least=1), rounds=1)
    assert len(state.worked) == 1


def test_fewer_sites_than_the_run_is_for_are_said_once() -> None:
    said: list[str] = []
    hand = Hand(sites())
    fleet = deployed(hand, least=CLIENTS, say=said.append)
    state = run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=1)
    hand.sites = {node: site for node, site in hand.sites.items() if node > 102}
    run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=3, state=state)
    lines = [line for line in said if "continues with" in line]
    assert lines == ["round 2 continues with 1 of 4 sites; [sites] quorum says how many a round needs"]


def test_a_quorum_is_a_setting_of_the_file() -> None:
    tables: dict[str, Any] = {"data": {"name": "digits", "clients": 4}, "sites": {"quorum": 3}}
    fleet = site_fleet(resolve(tables), Hand({}), keys={}, least=4)
    assert fleet.turnout.quorum == 3
    with pytest.raises(UserError, match=r"sites\.quorum is 3, but the run is for 2 sites"):
        site_fleet(resolve(tables), Hand({}), keys={}, least=2)
    with pytest.raises(UserError, match=r"sites\.quorum is -1; allowed"):
        resolve({"sites": {"quorum": -1}})
