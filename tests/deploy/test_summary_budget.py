"""A site's budget for summaries: what it covers, what it refuses, and that nothing gets around it."""

from pathlib import Path
from typing import Any

import pytest

from covey.core.codec import from_bytes
from covey.core.round import run_rounds
from covey.deploy.wire import step_to_plain
from covey.errors import UserError
from covey.parts.measure import Measuring
from covey.parts.steps import Evaluate, Train
from covey.parts.steps.cross import CrossEvaluate
from covey.parts.steps.poison import Poisoned
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from covey.testing import check_toml
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites


def summary(epsilon: float | None, number: int) -> bytes:
    step = LabelSummary(privacy=Privacy(epsilon=epsilon))
    return one_request(step=step_to_plain(step), round=number, task={"args": {}})


def test_a_sites_budget_holds_whatever_the_server_asks_for(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    site = sites(tmp_path, budget=1.0)[100]
    assert from_bytes(site.answer(summary(0.6, 1)))["reply"]["stats"]["epsilon"] == 0.6
    assert "0.6 of the budget of 1 is spent" in from_bytes(site.answer(summary(0.6, 2)))["refused"]
    again = sites(tmp_path, budget=1.0)[100]  # after a restart, and for another run
    assert "0.6 of the budget of 1 is spent" in from_bytes(again.answer(summary(0.6, 1)))["refused"]


def test_with_a_budget_what_cannot_be_counted_is_refused() -> None:
    site = sites(budget=1.0)[100]
    assert from_bytes(site.answer(summary(None, 1)))["refused"] == (
        "query.labels has no privacy loss that can be counted, and this site has a budget of 1"
    )
    trusting = sites(budget=1.0, trust_server=True)[100]
    assert from_bytes(trusting.answer(one_request()))["reply"] is not None


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (Poisoned(local=LabelSummary(), clients=(), attack="flip"), "query.labels has no privacy loss"),
        (Evaluate(split="train"), "evaluate.local asks about training data"),
        (Evaluate(split="validation", holdout=0.99), "evaluate.local asks about training data"),
        (CrossEvaluate(holdout=0.99, models=1), "evaluate.cross asks about most of the training data"),
    ],
)
def test_the_budget_cannot_be_walked_around(step: Any, sentence: str) -> None:
    answer = from_bytes(sites(budget=1.0)[100].answer(one_request(step=step_to_plain(step))))
    assert sentence in answer["refused"]
    assert "reply" not in answer


@pytest.mark.parametrize("step", [Evaluate(), CrossEvaluate(holdout=0.2, models=1), Train(lr=0.1)])
def test_what_a_private_method_needs_stays_possible_where_the_server_is_trusted(step: Any) -> None:
    request = one_request(step=step_to_plain(step))
    answer = from_bytes(sites(budget=1.0, trust_server=True)[100].answer(request))
    assert answer["reply"] is not None
    refused = from_bytes(sites(budget=1.0)[100].answer(request))["refused"]
    assert (
        "has no privacy loss that can be counted, and this site has a budget of 1; --trust-server" in refused
    )


@pytest.mark.parametrize("name", ["cbcc", "haccs"])
def test_a_private_run_over_sites_with_a_budget_is_refused_nothing(name: str) -> None:
    pytest.importorskip("opendp")
    fleet = deployed(Hand(sites(budget=1.0, trust_server=True)))
    method = check_toml(name, {"per_round": CLIENTS, "epsilon": 0.5})
    state = run_rounds(method, fleet, rounds=2, measure=Measuring())
    assert state.worked == (0, 1, 2, 3)
    assert fleet.ledger.refused == fleet.ledger.lost == 0
    assert fleet.ledger.epsilon == dict.fromkeys(range(CLIENTS), 0.5)


def test_a_real_site_never_says_for_nothing_whether_its_data_moved(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    site = sites(tmp_path, budget=1.0)[100]
    for number in (1, 2):
        step = step_to_plain(LabelSummary(privacy=Privacy(epsilon=0.4)))
        block = one_request(step=step, round=number, task={"args": {"tolerance": 0.5}})
        assert from_bytes(site.answer(block))["reply"]["stats"]["epsilon"] == pytest.approx(0.4 * number)
    third = one_request(step=step, round=3, task={"args": {"tolerance": 0.5}})
    assert "0.8 of the budget of 1 is spent" in from_bytes(site.answer(third))["refused"]


def test_a_label_space_that_is_too_small_does_not_tell_which_labels_there_are() -> None:
    step = step_to_plain(LabelSummary(privacy=Privacy(epsilon=0.1), labels=1))
    answer = from_bytes(sites(budget=1.0)[100].answer(one_request(step=step)))
    assert answer["refused"] == "a summary of 1 labels is asked for; this site's data have more classes"
    assert not answer["mistake"]


def test_two_processes_cannot_spend_one_budget_twice(tmp_path: Path) -> None:
    from covey.deploy.site_memory import locked_folder

    state = tmp_path / "state"
    sentence = "state is used by another covey join; give each its own"
    with locked_folder(state), pytest.raises(UserError, match=sentence), locked_folder(state):
        pass
    with locked_folder(state):
        pass  # free again


@pytest.mark.parametrize("budget", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_budget_is_a_finite_number(budget: float) -> None:
    with pytest.raises(UserError, match="allowed: a number above 0"):
        sites(budget=budget)


@pytest.mark.parametrize("text", ["much", "nan", "-1"])
def test_an_account_that_cannot_be_read_is_not_a_new_budget(tmp_path: Path, text: str) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "epsilon").write_text(text)
    with pytest.raises(UserError, match=r"--state: .*epsilon"):
        sites(tmp_path, budget=1.0)
