"""Methods whose clients have models of their own, on least squares beside the textbook."""

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds, served
from covey.errors import UserError
from covey.methods.apfl import apfl
from covey.methods.baselines import fedavg
from covey.methods.fedala import fedala
from covey.methods.fedamp import attention, fedamp
from covey.methods.per_fedavg import per_fedavg
from covey.methods.personal import fedper, fedrep
from covey.methods.pfedme import pfedme
from covey.parts.measure import scores
from covey.parts.mix.gram import products
from covey.parts.steps import Train
from tests.methods.test_feddyn import LR, STEPS, full_batch, least_squares
from tests.methods.test_personal import ONE_STEP, two_clients

SIZES = [30, 60]


def slope(x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 2 * x.T @ (x @ v - y) / len(y)


def test_fedrep_by_hand() -> None:
    """The model is b a x from a = b = 1, x = 1, lr 0.1; y = 3 and 0. The head b is trained first, then a alone.

    Client 0: e = -2, b = 1 + .4 = 1.4; e = 1.4 - 3 = -1.6, a = 1 + .2 1.6 1.4 = 1.448.
    Client 1: e = 1, b = .8; e = .8, a = 1 - .2 .8 .8 = .872. The common a is 1.16, the server's b stays 1.
    """
    fleet = two_clients()
    state = run_rounds(fedrep(ONE_STEP, per_round=2, last=1, head_epochs=1), fleet, rounds=1)
    assert state.models[0].tolist() == pytest.approx([1.16, 1.0])
    heads = [next(iter(one["home"].values())).tolist() for one in fleet.save()["states"].values()]
    assert heads == [pytest.approx([1.4]), pytest.approx([0.8])]


def test_what_stays_at_home_is_not_charged() -> None:
    """One of two numbers travels each way: 4 bytes, beside 8 for each of two statistics."""
    for method, numbers in ((fedper(ONE_STEP, per_round=2, last=1), 1), (fedavg(ONE_STEP, per_round=2), 2)):
        fleet = two_clients()
        run_rounds(method, fleet, rounds=1)
        cost = fleet.ledger.cost
        assert (cost.bytes_down, cost.bytes_up) == (2 * 4 * numbers, 2 * (4 * numbers + 16))


def test_pfedme_is_the_textbook_algorithm() -> None:
    pull, inner, beta = 2.0, 3, 0.5
    xs, ys, fleet = least_squares(SIZES)
    state = run_rounds(pfedme(full_batch(), per_round=2, pull=pull, inner=inner, beta=beta), fleet, rounds=3)
    w, own = np.zeros(3), [np.zeros(3)] * 2
    for _ in range(3):
        near = [w.copy(), w.copy()]
        own = [w.copy(), w.copy()]
        for k in range(2):
            for _ in range(STEPS):
                for _ in range(inner):
                    own[k] = own[k] - LR * (slope(xs[k], ys[k], own[k]) + pull * (own[k] - near[k]))
                near[k] = near[k] - LR * pull * (near[k] - own[k])
        w = (1 - beta) * w + beta * np.mean(near, axis=0)
    assert state.models[0].tolist() == pytest.approx(w.tolist(), abs=2e-4)
    for k in range(2):
        assert fleet.save()["states"][str(k)]["own"].tolist() == pytest.approx(own[k].tolist(), abs=2e-4)


def test_apfl_is_the_textbook_algorithm() -> None:
    xs, ys, fleet = least_squares(SIZES)
    state = run_rounds(apfl(full_batch(), per_round=2, alpha=0.3), fleet, rounds=2)
    w, v, a = np.zeros(3), np.zeros((2, 3)), np.full(2, 0.3)
    for _ in range(2):
        common = [w.copy(), w.copy()]
        for k in range(2):
            for step in range(STEPS):
                common[k] = common[k] - LR * slope(xs[k], ys[k], common[k])
                g = slope(xs[k], ys[k], a[k] * v[k] + (1 - a[k]) * common[k])
                before = v[k].copy()
                v[k] = v[k] - LR * a[k] * g  # the share that the mixture had
                if step == 0:
                    a[k] = np.clip(a[k] - LR * (before - common[k]) @ g, 0, 1)
        w = (30 * common[0] + 60 * common[1]) / 90
    assert state.models[0].tolist() == pytest.approx(w.tolist(), abs=2e-4)
    for k, kept in enumerate(fleet.save()["states"].values()):
        assert kept["apfl.alpha"] == pytest.approx(a[k], abs=1e-4)
        assert kept["apfl.v"].tolist() == pytest.approx(v[k].tolist(), abs=2e-4)


def test_per_fedavg_is_the_textbook_algorithm_and_is_used_after_one_step() -> None:
    alpha = 0.02
    xs, ys, fleet = least_squares(SIZES)
    method = per_fedavg(full_batch(), per_round=2, alpha=alpha)
    state = run_rounds(method, fleet, rounds=2)
    w = np.zeros(3)
    for _ in range(2):
        models = []
        for k in range(2):
            v = w.copy()
            for _ in range(STEPS // 2):  # a pair of batches is one step
                v = v - LR * slope(xs[k], ys[k], v - alpha * slope(xs[k], ys[k], v))
            models.append(v)
        w = np.mean(models, axis=0)
    assert state.models[0].tolist() == pytest.approx(w.tolist(), abs=2e-4)
    assert method.adapt is not None
    assert (method.adapt.lr, method.adapt.batches) == (alpha, 1)


def test_fedala_starts_from_the_learned_mixture() -> None:
    """b a x with a = b = 1; the last tensor is b. Round 1: client 0 has (1.4, 1.4), client 1 (.8, .8), the mean is
    (1.1, 1.1). Round 2, client 0: v = 1.4, w = 1.1 for b; a = 1.1 is taken. W = 1: at (1.1, 1.1) e = 1.21 - 3 = -1.79,
    g_b = 2 e a = -3.938, W <- 1 - g (w - v) = 1 - 3.938 .3 = -.1814 -> 0: it starts from (1.1, 1.4) and stays there, as
    the slope only grows: e = 1.54 - 3 = -1.46, a = 1.1 + .2 1.46 1.4 = 1.5088, b = 1.4 + .2 1.46 1.1 = 1.7212.
    """
    fleet = two_clients()
    run_rounds(fedala(ONE_STEP, per_round=2, last=1), fleet, rounds=2)
    kept = fleet.save()["states"]["0"]
    assert kept["ala.weights"].tolist() == [1.0, 0.0]
    assert kept["own"].tolist() == pytest.approx([1.5088, 1.7212], abs=1e-4)


def test_attention_by_hand() -> None:
    """Points 0, 1 and 3 on a line, sigma 1, own 0.4: client 0 sees e^-1 and e^-9, which make up 0.6."""
    gram = products([torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([3.0])])
    found = attention(gram, sigma=1.0, own=0.4)
    first = 0.6 * np.exp(-1) / (np.exp(-1) + np.exp(-9))
    assert found[0].tolist() == pytest.approx([0.4, first, 0.6 - first])
    assert found.sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_fedamp_holds_the_own_model_to_the_cloud_model() -> None:
    pull = 0.7
    xs, ys, fleet = least_squares(SIZES)
    state = run_rounds(fedamp(full_batch(), pull=pull, own=0.25), fleet, rounds=2)
    w = np.zeros((2, 3))
    for _ in range(2):
        cloud = np.array([[0.25, 0.75], [0.75, 0.25]]) @ w  # of two, the other has all the attention
        for k in range(2):
            for _ in range(STEPS):
                w[k] = w[k] - LR * (slope(xs[k], ys[k], w[k]) + pull * (w[k] - cloud[k]))
    assert state.models.numpy() == pytest.approx(w, abs=2e-4)


@pytest.mark.parametrize("maker", [pfedme, apfl, fedala, fedamp, fedrep])
def test_own_models_are_what_is_measured(maker) -> None:
    """Two clients that no common model fits: y = 3 and y = 0 for the same x."""
    train = Train(epochs=40, batch=10, lr=0.05)
    settings = {"pull": 0.01} if maker in (pfedme, fedamp) else {}
    if maker is not fedamp:
        settings["per_round"] = 2
    fleet = two_clients()
    method = maker(train, **settings)
    state = run_rounds(method, fleet, rounds=3)
    assert scores(method, state, fleet)["local-test/mse-mean"] < 0.5
    assert set(served(method, state, fleet, [0, 1])) == {0, 1}


@pytest.mark.parametrize("maker", [pfedme, apfl, per_fedavg, fedala])
def test_steps_that_are_not_plain_are_refused(maker) -> None:
    with pytest.raises(UserError, match="plain steps"):
        maker(Train(momentum=0.9))
