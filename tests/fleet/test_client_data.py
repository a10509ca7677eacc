"""Everybody's data as if they lay in one place."""

import numpy as np
import pytest
import torch

from covey.data import federate, load
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices


@pytest.mark.parametrize(
    "positions", [[0, 3, 1000], [1000, 0, 3], [5, 5], [], slice(2, 700), np.arange(0, 1400, 7)]
)
def test_a_choice_of_pooled_samples_is_those_samples_in_that_order(positions: object) -> None:
    data = federate(load("digits"), partition="dir-class", clients=7, alpha=0.5, seed=3)
    pooled = ClientData(data, Devices()).train(-1, 1)
    x, y = pooled.tensors()
    places = positions if isinstance(positions, slice) else np.asarray(positions, dtype=np.int64)
    chosen = pooled.select(places)
    got_x, got_y = chosen.tensors()
    assert len(chosen) == len(got_y)
    assert torch.equal(got_x, x[places])
    assert torch.equal(got_y, y[places])
    assert np.array_equal(chosen.labels(), pooled.labels()[places])
