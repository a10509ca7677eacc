"""A site takes its model home: the row that the simulation measures, in the site's own folder and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from covey.cli import app
from covey.core.round import Task, run_rounds, served
from covey.deploy.site_memory import model_at
from covey.errors import UserError
from covey.folder.served_model import read_model
from covey.methods.baselines import fedavg
from covey.methods.ifca import ifca
from covey.methods.personal import ditto, fedrep, fine_tuned
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.served import Serving, TakeServed
from covey.parts.steps.take_home import sent_home
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, shares, simulated, sites

TRAIN = Train(epochs=1, lr=0.1)
KINDS = {
    "plain": fedavg(TRAIN, per_round=CLIENTS),
    "home parts": fedrep(TRAIN, per_round=CLIENTS),
    "own": ditto(TRAIN, per_round=CLIENTS),
    "choice by loss": ifca(TRAIN, per_round=CLIENTS, k=2),
    "adapted": fine_tuned(TRAIN, per_round=CLIENTS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_at_a_site_is_the_row_that_the_simulation_serves(kind: str, tmp_path: Path) -> None:
    method, hand = KINDS[kind], Hand(sites(tmp_path))
    fleet = deployed(hand, method=method.name)
    state = run_rounds(method, fleet, rounds=2)
    assert len(sent_home(method, state, fleet)) == CLIENTS
    local = simulated()
    same = run_rounds(method, local, rounds=2)
    assert torch.equal(same.models, state.models)
    tasks = served(method, same, local, range(CLIENTS))
    rows = {
        reply.id: reply for reply in local.ask(TakeServed(serving=Serving.of(method)), tasks, measure=True)
    }
    for client in range(CLIENTS):
        _, model = model_at(tmp_path / str(client))
        row = rows[client].vector
        assert row is not None
        assert torch.equal(model.row, row)
        facts = model.facts
        assert (facts.method, facts.round, facts.client) == (method.name, 2, f"site-{client}")
        test = shares()[client].test
        x, y = test.tensors()
        right = model.outputs(test.dataset.x[test.index]).argmax(dim=1) == y
        assert facts.measured["local-test/accuracy"] == pytest.approx(float(right.double().mean()))
        assert len(x) == len(right)


def test_the_server_learns_nothing_of_it_and_a_budget_does_not_forbid_it(tmp_path: Path) -> None:
    method = KINDS["choice by loss"]
    fleet = deployed(Hand(sites(tmp_path)), method=method.name)
    state = run_rounds(method, fleet, rounds=1)
    hand = Hand(sites(tmp_path / "private", budget=3.0))
    private = deployed(hand, method=method.name)
    private.begin(1)
    replies = sent_home(method, state, private)
    assert len(replies) == CLIENTS
    assert {(reply.size, reply.slot, reply.vector, len(reply.stats)) for reply in replies} == {
        (0, 0, None, 0)
    }
    states = [file for file in (tmp_path / "private").glob("*/run-*") if b"served" in file.read_bytes()]
    assert states == []


def test_the_command_says_what_it_is_and_writes_it(tmp_path: Path) -> None:
    def covey(*words: str) -> Any:
        return CliRunner().invoke(app, ["model", *words], env={"COLUMNS": "300"})

    assert "is not a folder" in str(covey(str(tmp_path / "nowhere")).exception)
    method = KINDS["own"]
    fleet = deployed(Hand(sites(tmp_path)), method=method.name)
    assert "holds no model yet" in str(covey(str(tmp_path / "0")).exception)
    state = run_rounds(method, fleet, rounds=1)
    sent_home(method, state, fleet)
    out = tmp_path / "mine.safetensors"
    said = covey(str(tmp_path / "1"), "--out", str(out))
    assert said.exit_code == 0
    assert "the own model of client site-1 beside model 0 of ditto after round 1" in said.output
    assert out.stat().st_mode & 0o777 == 0o600
    assert torch.equal(read_model(out).row, model_at(tmp_path / "1")[1].row)
    assert "exists already" in str(covey(str(tmp_path / "1"), "--out", str(out)).exception)
    (file,) = (tmp_path / "2" / "models").glob("*")
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(UserError, match="damaged"):
        model_at(tmp_path / "2")


@pytest.mark.parametrize("kind", KINDS)
def test_while_a_run_goes_on_a_site_has_the_model_that_was_measured_last(kind: str, tmp_path: Path) -> None:
    method, hand = KINDS[kind], Hand(sites(tmp_path))
    fleet = deployed(hand, method=method.name)
    state = run_rounds(method, fleet, rounds=2)
    measured = Measuring(global_test=False)(method, state, fleet, last=False)
    hand.away.add(100)  # it is not there when the run ends
    state = run_rounds(method, fleet, rounds=3, state=state)
    sent_home(method, state, fleet)
    (_, away), (_, there) = model_at(tmp_path / "0"), model_at(tmp_path / "1")
    assert (away.facts.round, there.facts.round) == (2, 3)
    assert away.facts.given.endswith("the run had not come to its end at this site")
    assert "not come to its end" not in there.facts.given
    told = {m.client: m.value for m in measured if m.metric == "accuracy"}
    test = shares()[0].test
    right = away.outputs(test.dataset.x[test.index]).argmax(dim=1) == test.tensors()[1]
    assert (
        away.facts.measured["local-test/accuracy"] == told[0] == pytest.approx(float(right.double().mean()))
    )


def test_where_nothing_is_measured_it_is_the_model_that_the_site_was_sent_last(tmp_path: Path) -> None:
    method, hand = KINDS["plain"], Hand(sites(tmp_path))
    fleet = deployed(hand, method=method.name)
    state = run_rounds(method, fleet, rounds=1)
    with pytest.raises(UserError, match="no model yet"):  # in the first round nobody has trained it
        model_at(tmp_path / "0")
    after_one = state.models[0]
    run_rounds(method, fleet, rounds=2, state=state)
    _, model = model_at(tmp_path / "0")
    assert torch.equal(model.row, after_one)
    assert model.facts.round == 1
    assert model.facts.given == (
        "model 0 of fedavg after round 1, as it was sent to client site-0 to be trained in round 2; the run had not "
        "come to its end at this site"
    )


def test_what_a_method_asks_for_itself_is_no_model_to_take_home(tmp_path: Path) -> None:
    fleet = deployed(Hand(sites(tmp_path)), method="fedavg")
    fleet.begin(2)
    fleet.ask(Evaluate(), {0: Task(models=fleet.start()[None], slots=(0,))})
    assert not (tmp_path / "0" / "models").exists()
