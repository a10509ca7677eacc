"""BatchNorm divides by the roots of variances that clients send: below zero every score would be NaN."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from covey.core.round import Method, Reply, run_rounds
from covey.data import federate, load
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.parts.measure import on_local_tests
from covey.runs.config import resolve
from covey.training.models import build
from covey.training.rows import Layout
from tests.hostile.liar import with_liars

CLIENTS = 4


def fleet() -> LocalFleet:
    data = federate(load("digits"), partition="iid", clients=CLIENTS, seed=3)
    model = build("cnn-fashion", input_shape=(1, 8, 8), outputs=10, seed=1)
    return LocalFleet(data, model, seed=5, engine=Engine(mode="serial"))


def method(**tables: Any) -> Method:
    usual = {"train": {"lr": 0.05, "batch": 32}, "data": {"clients": CLIENTS}, "rounds": 2}
    return resolve({"method": {"name": "fedavg", "per_round": CLIENTS}, **usual, **tables}).method


def negative(layout: Layout, reply: Reply) -> Reply:
    assert reply.vector is not None
    row = reply.vector.clone()
    for columns in layout.variances.values():
        row[columns] = -3.0
    return replace(reply, vector=row)


def test_a_layout_knows_where_its_variances_are() -> None:
    norm = torch.nn.BatchNorm2d(2)
    layout = Layout.of(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1, bias=False), norm))
    # weights 2, BatchNorm's weights and biases 2 + 2, running means 2, running variances 2
    assert layout.variances == {"1.running_var": slice(8, 10)}
    assert layout.after_noise(torch.full((10,), -1.0)).tolist() == [-1.0] * 8 + [0.0] * 2


def test_who_sends_a_negative_variance_is_refused_and_the_others_go_on() -> None:
    """It is finite, short and of the right shape; in an average with others it would make all scores NaN."""
    lied = fleet()
    with_liars(lied, lambda reply: negative(lied.layout, reply) if reply.vector is not None else reply, (3,))
    used = method()
    state = run_rounds(used, lied, rounds=2)
    assert {p.client for _, p in lied.ledger.problems} == {3}
    assert "running_var holds -3; a variance is at least 0" in lied.ledger.last_problem()
    accuracy = [m.value for m in on_local_tests(used, state, lied) if m.metric == "accuracy"]
    assert min(accuracy) > 0.5


@pytest.mark.parametrize(
    "private",
    [{"level": "local"}, {"level": "client"}, {"level": "client", "secure": True}],
    ids=["at the client", "at the server", "in a secure sum"],
)
def test_noise_makes_no_variance_negative(private: dict[str, Any]) -> None:
    used, noisy = method(private={**private, "noise": 20.0, "clip": 1.0}), fleet()
    state = run_rounds(used, noisy, rounds=2)
    found = [state.models[0, columns] for columns in noisy.layout.variances.values()]
    assert min(float(values.min()) for values in found) == 0.0
    scores = on_local_tests(used, state, noisy)
    assert torch.isfinite(torch.tensor([m.value for m in scores])).all()
    assert noisy.ledger.problems == []
