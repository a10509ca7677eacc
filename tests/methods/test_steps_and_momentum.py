"""FedNova, MimeLite and MOON beside their textbook forms."""

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.methods.fednova import fednova, local_lengths
from covey.methods.mime import mime_lite
from covey.methods.moon import contrastive, moon
from covey.parts.steps import Train
from tests.made_up_rounds import digits_fleet  # noqa: F401
from tests.methods.test_feddyn import LR, STEPS, full_batch, least_squares

SIZES = [32, 64, 96]


def slope(x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 2 * x.T @ (x @ v - y) / len(y)


def test_fednova_is_the_textbook_average_of_updates_per_step() -> None:
    """One epoch in batches of 32: clients of 32, 64 and 96 samples make 1, 2 and 3 steps.

    p = 1/6, 2/6, 3/6; tau_eff = (1 + 4 + 9) / 6 = 14/6; p_k / tau_k = 1/6 each: w moves by 14/36 of every update.
    """
    _, _, fleet = least_squares(SIZES)
    train = Train(epochs=1, batch=32, lr=LR)
    alone = [run_rounds(fedavg(train, per_round=1), only(k), rounds=1).models[0] for k in range(3)]
    state = run_rounds(fednova(train, per_round=3), fleet, rounds=1)
    assert state.models[0].tolist() == pytest.approx((14 / 36 * sum(alone)).tolist(), abs=1e-6)


def only(k: int):
    """The fleet in which only client k can be reached."""
    from covey.fleet.devices import Devices

    _, _, fleet = least_squares(SIZES)
    others = [i for i in range(3) if i != k]
    fleet.devices = Devices(leaves=({"clients": others, "round": 0},))
    fleet.client_data = type(fleet.client_data)(fleet.data, fleet.devices)
    return fleet


def test_fednova_with_equally_many_steps_is_fedavg() -> None:
    same = run_rounds(fednova(full_batch(), per_round=3), least_squares(SIZES)[2], rounds=3).models
    plain = run_rounds(fedavg(full_batch(), per_round=3), least_squares(SIZES)[2], rounds=3).models
    assert torch.allclose(same, plain, atol=1e-6)


def test_how_often_gradients_count() -> None:
    """Three steps with momentum 0.5: the gradients count 1.75, 1.5 and 1 times. With lr mu = 0.5: .25, .5 and 1."""
    assert local_lengths(np.array([3.0]), Train(momentum=0.5), 0.1).tolist() == [1.75 + 1.5 + 1]
    assert local_lengths(np.array([3.0]), Train(prox=5.0), 0.1).tolist() == pytest.approx([1.75])
    assert local_lengths(np.array([3.0]), Train(), 0.1).tolist() == [3.0]
    with pytest.raises(UserError, match="counts local steps of SGD"):
        fednova(Train(optimiser="adam"))


def test_mime_lite_is_the_textbook_algorithm() -> None:
    beta = 0.6
    xs, ys, fleet = least_squares(SIZES)
    chosen: list[list[int]] = []
    state = run_rounds(
        mime_lite(full_batch(), per_round=2, beta=beta),
        fleet,
        rounds=4,
        watchers=[lambda end: chosen.append(list(end.state.worked))],
    )
    w, m = np.zeros(3), np.zeros(3)
    for clients in chosen:
        models = []
        for k in clients:
            v = w.copy()
            for _ in range(STEPS):
                v = v - LR * ((1 - beta) * slope(xs[k], ys[k], v) + beta * m)
            models.append(v)
        m = (1 - beta) * np.mean([slope(xs[k], ys[k], w) for k in clients], axis=0) + beta * m
        w = np.mean(models, axis=0)
    assert state.models[0].tolist() == pytest.approx(w.tolist(), abs=2e-4)


def test_the_contrastive_loss_by_hand() -> None:
    """Cosines 1 with the common model and 0 with the last one, t = 0.5: -log(e^2 / (e^2 + 1)) = log(1 + e^-2)."""
    z = torch.tensor([[2.0, 0.0]])
    found = contrastive(z, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]]), 0.5)
    assert float(found) == pytest.approx(np.log(1 + np.exp(-2)))


def test_moon_trains_on_the_sum_of_both_losses(digits_fleet) -> None:  # noqa: F811
    """The second round of one client beside a plain PyTorch loop with the same batches."""
    train = Train(epochs=1, batch=10_000, lr=0.1)
    fleet = digits_fleet(clients=2)
    method = moon(train, per_round=2, mu=2.0)
    first = run_rounds(method, fleet, rounds=1)
    before = {int(i): state["moon"] for i, state in fleet.save()["states"].items()}
    second = run_rounds(method, fleet, rounds=2, state=first)
    sizes, rows = [], []
    for k in range(2):
        x, y = fleet.data.shares[k].train.tensors()
        net = fleet.model
        split = nn.Sequential(*list(net.children())[:-1]), list(net.children())[-1]

        def put(row: torch.Tensor, net: nn.Module = net) -> None:
            nn.utils.vector_to_parameters(row.clone(), net.parameters())

        put(before[k])
        last = split[0](x).detach()
        put(first.models[0])
        common = split[0](x).detach()
        z = split[0](x)
        sims = [nn.functional.cosine_similarity(z, other) / 0.5 for other in (common, last)]
        apart = -(sims[0] - torch.logsumexp(torch.stack(sims), dim=0)).mean()
        loss = nn.functional.cross_entropy(split[1](z), y) + 2.0 * apart
        slopes = torch.autograd.grad(loss, list(net.parameters()))
        rows.append(first.models[0] - 0.1 * torch.cat([g.flatten() for g in slopes]))
        sizes.append(len(y))
    mean = sum(size * row for size, row in zip(sizes, rows, strict=True)) / sum(sizes)
    assert torch.allclose(second.models[0], mean, atol=1e-5)
