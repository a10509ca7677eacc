"""What travels between peers: read off the matrices, booked once, and as slow as the busiest of them."""

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import Mixing, Reply
from covey.data import federate, load
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.peers import links


def test_an_entry_from_somebody_elses_row_is_a_message() -> None:
    """Clients 7 and 3 hold the rows, 3 replied. Client 7 takes 3's reply; in the second factor both swap."""
    first = np.array([[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]])
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    found = links(Mixing(factors=[first, swap], peers=True), holders=(7, 3), replies=[Reply(id=3)])
    assert found.sender.tolist() == [7, 3]
    assert found.receiver.tolist() == [3, 7]
    assert found.rows.tolist() == [1, 2]


def test_the_busiest_peer_sets_the_time() -> None:
    """Client 0 sends one row of 2,600 bytes to each of two others, over 1 Mbit/s with 0.1 s of latency."""
    data = federate(load("digits"), partition="iid", clients=3, seed=0)
    slow = Devices(special=[{"clients": 0, "up": 1.0, "latency": 0.1}])
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    fleet = LocalFleet(data, model, devices=slow, engine=Engine(mode="serial", workers=1))
    give = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]])
    fleet.combine([Mixing(factors=[give], peers=True)], torch.zeros(3, 650), [], (0, 1, 2))
    cost = fleet.ledger.total["mix.peers"]
    assert (cost.messages, cost.bytes_peer) == (2, 2 * 2600)
    assert cost.seconds == pytest.approx(2 * (2600 * 8e-6 + 0.1))


def test_columns_that_no_mixing_names_stay() -> None:
    bank = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    mean = Mixing(factors=[np.full((2, 2), 0.5)], columns=slice(0, 1))
    assert apply_mixings([mean], bank, []).tolist() == [[2.0, 5.0], [2.0, 7.0]]
