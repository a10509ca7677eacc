"""FedAsync and FedBuff on the virtual clock."""

import numpy as np
import pytest
import torch

from covey.core.round import Task, run_rounds
from covey.fleet.devices import Devices
from covey.fleet.guard import Guard
from covey.methods.baselines import fedavg
from covey.methods.stale import StaleAverage, fading, fedasync, fedbuff
from tests.made_up_rounds import make_round
from tests.methods.test_feddyn import full_batch, least_squares

SIZES = [30, 60, 90]


def slow(times: list[float]):
    """Least squares at three clients that take so many seconds for a round."""
    xs, ys, fleet = least_squares(SIZES)
    special = [{"clients": i, "delay": seconds} for i, seconds in enumerate(times)]
    fleet.books.guard = Guard(norm=0)  # the first model is 0: any update is longer
    fleet.devices = Devices(pace=0.0, special=special)
    fleet.machines = fleet.devices.build(3, np.random.default_rng(0))
    return xs, ys, fleet


def test_a_buffer_of_everybody_is_a_synchronous_round() -> None:
    plain = run_rounds(fedavg(full_batch(), per_round=3, weighting="equal"), slow([1, 2, 3])[2], rounds=3)
    same = run_rounds(fedbuff(full_batch(), at_once=3, buffer=3), slow([1, 2, 3])[2], rounds=3)
    assert torch.allclose(plain.models, same.models, atol=1e-6)


def test_who_arrives_when() -> None:
    """Clients take 1, 1.5 and 10 s. Arrivals: 0 at 1 s, 1 at 1.5 s, 0 again at 2 s, 1 at 3 s (with 0, after it)."""
    _, _, fleet = slow([1.0, 1.5, 10.0])
    seen: list[tuple[tuple[int, ...], float]] = []
    run_rounds(
        fedasync(full_batch(), at_once=3),
        fleet,
        rounds=5,
        watchers=[lambda end: seen.append((end.state.worked, fleet.ledger.clock))],
    )
    assert seen == [((0,), 1.0), ((1,), 1.5), ((0,), 2.0), ((0,), 3.0), ((1,), 3.0)]
    assert set(fleet.underway) == {0, 2}


def test_old_replies_fade_by_hand() -> None:
    """Staleness 0 and 3 with power 0.5 count 1 and 0.5.

    Updates: w = 10, sent 10 and 4 (three rounds ago); replies 12 and 6: w + (2 + 0.5 2) / 2 = 11.5.
    Models: w <- w + ((12 - 10) + 0.5 (6 - 10)) / 2 = 10.
    """
    assert fading(np.array([0.0, 3.0]), 0.5).tolist() == [1, 0.5]
    for whole, wanted in ((False, 11.5), (True, 10.0)):
        now = make_round((10.0,), replies={0: ([12.0], 1), 1: ([6.0], 1)}, number=4)
        now.tasks = {
            0: Task(models=torch.tensor([[10.0]]), slots=(0,)),
            1: Task(models=torch.tensor([[4.0]]), slots=(0,)),
        }
        now.sent = {0: 4, 1: 1}
        mixing = StaleAverage(power=0.5, whole=whole)(now)
        rows = np.array([10.0] + [float(reply.vector[0]) for reply in now.replies])
        assert (mixing.factors[0] @ rows).tolist() == pytest.approx([wanted])
