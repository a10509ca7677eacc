"""Flower's strategies as methods of covey."""

import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.serverapp import strategy as flower

import covey
import covey.flower
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.methods.robust import median
from covey.testing import check_method

TRAIN = covey.Train(lr=0.1)


def final(method: covey.Method, rounds: int = 3) -> torch.Tensor:
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=6, alpha=0.5, seed=0)
    fleet = covey.LocalFleet(data, covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10))
    return covey.run_rounds(method, fleet, rounds=rounds).models


def test_flowers_fedavg_is_coveys() -> None:
    theirs = final(covey.flower.as_method(flower.FedAvg(), TRAIN, per_round=4))
    torch.testing.assert_close(theirs, final(fedavg(TRAIN, per_round=4)), atol=1e-6, rtol=0)


def test_flowers_median_is_coveys() -> None:
    theirs = final(covey.flower.as_method(flower.FedMedian(), TRAIN, per_round=4), rounds=1)
    torch.testing.assert_close(theirs, final(median(TRAIN, per_round=4), rounds=1), atol=1e-6, rtol=0)


def test_what_a_strategy_remembers_is_in_the_state() -> None:
    strategy = flower.FedAdam(eta=0.01)
    method = covey.flower.as_method(strategy, TRAIN, per_round=4)
    once, again = final(method), final(method)
    assert torch.equal(once, again)  # nothing of the first run is left in the strategy
    assert strategy.m_t is None
    data = covey.federate(covey.load("digits"), partition="iid", clients=4, seed=0)
    fleet = covey.LocalFleet(data, covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10))
    state = covey.run_rounds(method, fleet, rounds=2)
    kept = state.memory["what Flower's strategy remembers"]
    assert sorted(kept) == ["current_arrays", "m_t", "v_t"]
    assert all(isinstance(part, np.ndarray) for part in kept["m_t"].values())


def test_it_keeps_the_contract() -> None:
    check_method(covey.flower.as_method(flower.FedAvgM(server_momentum=0.9), TRAIN, per_round=4))


@pytest.mark.parametrize("name", ["FedProx", "FedXgbBagging"])
def test_what_works_at_clients_is_refused(name: str) -> None:
    strategy = flower.FedProx(proximal_mu=0.1) if name == "FedProx" else flower.FedXgbBagging()
    with pytest.raises(UserError, match=f"strategy is {name}, which does its work at the clients"):
        covey.flower.as_method(strategy, TRAIN)


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(UserError, match="strategy is a str"):
        covey.flower.as_method("FedAvg", TRAIN)


def test_the_public_door_needs_nothing_of_flowers_insides() -> None:
    code = "import sys, covey.flower; sys.exit('covey.deploy.flower_insides' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
