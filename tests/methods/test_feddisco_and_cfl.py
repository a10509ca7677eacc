"""FedDisco's weights and CFL's splits."""

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.data import federate, load
from covey.data.types import ClientShare, Federation, Shift
from covey.errors import UserError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.cfl import cfl, halves, should_split
from covey.methods.feddisco import disco_weights, discrepancy, feddisco
from covey.parts.steps import Train
from covey.training.models import build


@pytest.mark.parametrize(
    ("measure", "distance"), [("kl", np.log(2)), ("l2", 0.5), ("l1", 1.0), ("cosine", 1 - np.sqrt(0.5))]
)
def test_discrepancy_of_two_labels_out_of_four(measure, distance) -> None:
    assert discrepancy(np.array([5, 5, 0, 0]), measure) == pytest.approx(distance)
    assert discrepancy(np.array([7, 7, 7, 7]), measure) == pytest.approx(0, abs=1e-12)


def test_disco_weights_by_hand() -> None:
    """Shares .5 .3 .2, distances scaled to .2 .2 .6, a .5, b .1: .5, .3, 0 -> .625 .375 0."""
    found = disco_weights(np.array([50.0, 30, 20]), np.array([1.0, 1, 3]), 0.5, 0.1)
    assert found == pytest.approx([0.625, 0.375, 0.0])


def test_disco_falls_back_to_samples() -> None:
    assert disco_weights(np.array([1.0, 3]), np.array([1.0, 1]), a=9, b=0.1) == pytest.approx([0.25, 0.75])
    assert disco_weights(np.array([1.0, 3]), np.zeros(2), a=0.5, b=0.0) == pytest.approx([0.25, 0.75])


def test_disco_asks_each_client_once(digits_fleet) -> None:
    fleet = digits_fleet(clients=6)
    state = run_rounds(feddisco(Train(lr=0.1), per_round=6), fleet, rounds=3)
    assert set(state.memory["feddisco"]) == set(range(6))
    assert fleet.ledger.total["query.discrepancy"].messages == 12


def test_halves_and_the_rule_to_split() -> None:
    updates = np.array([[3.0, 0.1], [-2.0, 0], [2.5, 0], [-3.4, 0.1]])
    gram = updates @ updates.T
    assert halves(gram).tolist() == [False, True, False, True]
    assert should_split(gram, still=0.4, apart=1.6)  # the mean is (0.025, 0.05), the longest 3.4
    assert not should_split(gram, still=0.05, apart=1.6)
    assert not should_split(gram, still=0.4, apart=4)


def two_kinds() -> Federation:
    """Eight clients; the odd ones name every digit by its successor."""
    data = federate(load("digits"), partition="iid", clients=8, seed=0)
    shares = [
        ClientShare(*(part.shifted(Shift(label_offset=9 * (i % 2))) for part in (share.train, share.test)))
        for i, share in enumerate(data.shares)
    ]
    return Federation(data.dataset, tuple(shares), data.test)


def test_cfl_separates_clients_that_contradict_each_other() -> None:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=0)
    fleet = LocalFleet(two_kinds(), model, engine=Engine(debug=True))
    state = run_rounds(
        cfl(Train(lr=0.2, epochs=2, batch=16), still=1.0, apart=0.8, patience=8), fleet, rounds=14
    )
    assert len(state.models) >= 2
    even, odd = ({state.groups[i] for i in range(start, 8, 2)} for start in (0, 1))
    assert not even & odd
    assert torch.isfinite(state.models).all()


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="measure is 'js'"):
        feddisco(Train(), measure="js")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="still is 0"):
        cfl(Train(), still=0)
