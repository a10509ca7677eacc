"""What stays with a client: by hand, and beside the textbook."""

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import run_rounds, served
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.personal import ditto, fedbn, fedper, fine_tuned
from covey.parts.measure import Measuring, scores
from covey.parts.steps import Train
from covey.parts.steps.home import places_at_home
from covey.training.objective import Regression
from covey.training.rows import Layout
from tests.methods.test_feddyn import LR, STEPS, full_batch, least_squares


def two_clients() -> LocalFleet:
    """One sample each, x = 1, y = 3 and y = 0, which is also their test; the model is b a x with a = b = 1."""
    whole = Dataset(
        name="two",
        x=torch.ones(2, 1),
        y=torch.tensor([3.0, 0.0]),
        train=np.arange(2),
        test=np.arange(0),
        classes=(),
    )
    own = [Samples(whole, np.array([i])) for i in range(2)]
    data = Federation(whole, tuple(ClientShare(part, part) for part in own), Samples(whole, np.arange(0)))
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for layer in model:
        nn.init.ones_(layer.weight)
    return LocalFleet(data, model, objective=Regression(), engine=Engine(debug=True))


ONE_STEP = Train(epochs=1, batch=10, lr=0.1)


def test_fedper_over_two_rounds_by_hand() -> None:
    """The error e = b a - y has the slopes 2 e b and 2 e a; lr 0.1; b stays at home.

    Round 1. Client 0: e = -2, a = b = 1.4. Client 1: e = 1, a = b = 0.8. The common a is 1.1, the server's b stays 1.
    Round 2. Client 0: e = 1.1 1.4 - 3 = -1.46, a = 1.1 + .4088 = 1.5088, b = 1.4 + .3212 = 1.7212.
      Client 1: e = .88, a = 1.1 - .1408 = .9592, b = .8 - .1936 = .6064. The common a is 1.234.
    Used: client 0's error is 1.234 1.7212 - 3 = -.876039, client 1's 1.234 .6064 = .748298.
    """
    fleet = two_clients()
    method = fedper(ONE_STEP, per_round=2, last=1)
    first = run_rounds(method, fleet, rounds=1)
    assert first.models[0].tolist() == pytest.approx([1.1, 1.0])
    state = run_rounds(method, fleet, rounds=2, state=first)
    assert state.models[0].tolist() == pytest.approx([1.234, 1.0])
    found = scores(method, state, fleet)["local-test/mse-mean"]
    assert found == pytest.approx((0.876039**2 + 0.748298**2) / 2, abs=1e-5)


def test_fedper_without_own_tensors_is_fedavg() -> None:
    plain = run_rounds(fedavg(ONE_STEP, per_round=2), two_clients(), rounds=3)
    same = run_rounds(fedper(ONE_STEP, per_round=2, last=0), two_clients(), rounds=3)
    assert torch.equal(plain.models, same.models)


def test_fedbn_keeps_norms_at_home() -> None:
    layout = Layout.of(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3)))
    # conv 2 + 2, norm 2 + 2, linear 6 + 3, running mean 2 and variance 2
    norms = [slice(4, 6), slice(6, 8), slice(17, 19), slice(19, 21)]
    assert places_at_home(layout, 0, True) == norms
    assert places_at_home(layout, 2, False) == [slice(8, 14), slice(14, 17)]
    assert places_at_home(layout, 0, False) == []
    plain = run_rounds(fedavg(ONE_STEP, per_round=2), two_clients(), rounds=2)
    assert torch.equal(run_rounds(fedbn(ONE_STEP, per_round=2), two_clients(), rounds=2).models, plain.models)


def test_ditto_trains_the_textbook_own_model_beside_fedavg() -> None:
    """v_k <- v_k - lr (gradient of F_k at v_k + pull (v_k - w)), from the last v_k, w as it was received."""
    pull = 0.7
    xs, ys, fleet = least_squares([30, 60])
    received: list[np.ndarray] = [np.zeros(3)]
    method = ditto(full_batch(), per_round=2, pull=pull)
    state = run_rounds(
        method,
        fleet,
        rounds=3,
        watchers=[lambda end: received.append(end.state.models[0].double().numpy())],
    )
    plain = run_rounds(fedavg(full_batch(), per_round=2), least_squares([30, 60])[2], rounds=3)
    assert torch.allclose(state.models, plain.models, atol=1e-5)
    own = fleet.save()["states"]
    for k in range(2):
        v = np.zeros(3)
        for w in received[:-1]:
            for _ in range(STEPS):
                v = v - LR * (2 * xs[k].T @ (xs[k] @ v - ys[k]) / len(ys[k]) + pull * (v - w))
        assert own[str(k)]["own"].tolist() == pytest.approx(v.tolist(), abs=2e-4)


def test_ditto_is_measured_with_the_own_models() -> None:
    """With no pull and one client's sample each, the own models end at y = 3 and y = 0; no common one fits both."""
    fleet = two_clients()
    method = ditto(Train(epochs=50, batch=10, lr=0.05), per_round=2, pull=0.0)
    state = run_rounds(method, fleet, rounds=3)
    assert scores(method, state, fleet)["local-test/mse-mean"] < 1e-3
    assert served(method, state, fleet, [0, 1])


def test_fine_tuning_changes_what_is_used_and_nothing_else() -> None:
    train = Train(epochs=50, batch=10, lr=0.05)
    fleet, plain = two_clients(), two_clients()
    tuned, common = fine_tuned(train, per_round=2), fedavg(train, per_round=2)
    states = run_rounds(tuned, fleet, rounds=2), run_rounds(common, plain, rounds=2)
    assert torch.equal(states[0].models, states[1].models)
    assert scores(tuned, states[0], fleet)["local-test/mse-mean"] < 0.05
    assert scores(common, states[1], plain)["local-test/mse-mean"] > 1
    assert Measuring(global_test=False)(tuned, states[0], fleet, True)
