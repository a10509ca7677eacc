"""Clients that join without labels, and clients that leave and come back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import Task, run_rounds, served
from covey.data import federate, from_tensors
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.flux import flux
from covey.methods.pacfl import TellSubspace
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve
from covey.settings.catalogue import METHODS

LATE = [{"clients": [4, 5], "round": 2, "labels": False}]


def blobs(clients: int = 6) -> LocalFleet:
    """Clients 0, 2, 4 hold points around (3, 0), the others around (-3, 0); labels are the second number's sign."""
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(clients) % 2, 40)
    x = rng.normal(size=(len(kind), 2)).astype(np.float32)
    y = (x[:, 1] > 0).astype(np.int64)
    x[:, 0] += np.where(kind == 0, 3, -3)
    owner = np.repeat(np.arange(clients), 40)
    data = from_tensors(torch.from_numpy(x), torch.from_numpy(y), natural={"owner": owner})
    shared = federate(data, partition="natural", clients=clients, seed=0)
    return LocalFleet(
        shared, nn.Linear(2, 2), devices=Devices(joins=LATE), engine=Engine(mode="serial", lanes=False)
    )


def test_who_has_no_labels_is_served_and_never_trains() -> None:
    fleet = blobs()
    assert fleet.begin(2) == [0, 1, 2, 3, 4, 5]
    assert fleet.trainers([0, 3, 4, 5]) == [0, 3]
    assert (fleet.known(4).train, len(fleet.client_data.train(4, 2))) == (0, 0)
    assert len(fleet.client_data.test(4, 2)) > 0
    worked: set[int] = set()
    state = run_rounds(
        fedavg(Train(lr=0.1), per_round=6),
        fleet,
        rounds=4,
        watchers=[lambda end: worked.update(end.state.worked)],
    )
    assert worked == {0, 1, 2, 3}
    assert set(served(fedavg(Train(lr=0.1)), state, fleet, [4, 5])) == {4, 5}


def test_flux_places_them_by_their_inputs() -> None:
    fleet = blobs()
    method = flux(Train(lr=0.1), per_round=6, after=1, clusters=2)
    state = run_rounds(method, fleet, rounds=3)
    assert state.groups[0] == state.groups[2] == state.groups[4]
    assert state.groups[1] == state.groups[3] == state.groups[5]
    assert state.groups[0] != state.groups[1]
    assert fleet.ledger.lost == fleet.ledger.refused == 0


def test_pacfl_describes_them_by_their_inputs() -> None:
    """Points around (3, 0): the first singular vector is nearly the first axis."""
    fleet = blobs()
    fleet.begin(2)
    (reply,) = fleet.ask(TellSubspace(vectors=1), {4: Task()})
    assert abs(reply.stats["subspace"][0, 0]) > 0.95


def test_who_leaves_and_comes_back_is_there_again() -> None:
    devices = Devices(leaves=[{"clients": [1], "round": 2}], joins=[{"clients": [1], "round": 4}])
    assert [1 in devices.members(3, number) for number in range(1, 6)] == [True, False, False, True, True]


@pytest.mark.parametrize("name", sorted(set(METHODS.builtin) - {"compose", "centralized"}))
def test_under_every_method_who_has_no_labels_is_served_and_asked_nothing_about_them(name: str) -> None:
    """An unseen client that cannot answer must not end the run, nor count as lost or refused."""
    config = resolve(
        {
            "data": {"name": "digits", "clients": 6},
            "method": {"name": name},
            "train": {"batches": 1, "epochs": 1},
            "devices": {"joins": [{"clients": [5], "round": 2, "labels": False}]},
            "engine": {"mode": "serial"},
        }
    )
    method, fleet = config.method, fleet_of(config)
    state = run_rounds(method, fleet, rounds=3)
    assert set(served(method, state, fleet, range(6))) == set(range(6))
    assert (fleet.ledger.lost, fleet.ledger.refused) == (0, 0)


def test_who_cannot_be_placed_is_given_the_model_of_most_clients() -> None:
    """Clients 1 to 3 share a model, 0 and 4 another; client 5 has no labels, and no group."""
    config = resolve(
        {
            "data": {"name": "digits", "clients": 6},
            "method": {"name": "cfl-gp", "k": 2},
            "devices": {"joins": [{"clients": [5], "round": 1, "labels": False}]},
            "engine": {"mode": "serial"},
        }
    )
    method, fleet = config.method, fleet_of(config)
    state = run_rounds(method, fleet, rounds=1)
    state = replace(state, groups={0: 0, 1: 1, 2: 1, 3: 1, 4: 0})
    assert served(method, state, fleet, [5])[5].slots == (1,)
    away = replace(
        state, groups={1: 1, 2: 1, 3: 1, 4: 0}
    )  # client 0 has labels: its group is still to be found
    assert set(served(method, away, fleet, [0, 5])) == {5}
