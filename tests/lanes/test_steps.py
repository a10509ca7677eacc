"""Many steps of training are those of torch.optim, with the terms that methods add to the loss."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lanes
from tests.lanes.reference import load_row, loss_of, row_of

SHAPE = (2, 7, 6)


def small_net() -> nn.Sequential:
    """Smooth everywhere, so that float32 and float64 stay together for many steps."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(126, 9),
        nn.Sigmoid(),
        nn.Linear(9, 4),
    )


def samples(count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((count, *SHAPE), dtype=np.float32), rng.integers(0, 4, count)


RAGGED = [
    np.arange(0, 20),
    np.arange(20, 21),
    np.arange(10, 43),
    np.array([3, 1, 4, 1, 5]),
    np.arange(49, 33, -1),
]


def reference(
    model: nn.Module,
    row: np.ndarray,
    optimiser: str,
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    prox: float = 0.0,
    linear: np.ndarray | None = None,
    clip: float | None = None,
) -> tuple[np.ndarray, list[float]]:
    """The same training in float64 by PyTorch."""
    x, y = samples()
    exact = load_row(model, row)
    parameters = list(exact.parameters())
    start = [p.detach().clone() for p in parameters]
    step: torch.optim.Optimizer = (
        torch.optim.SGD(parameters, lr, momentum=momentum, weight_decay=weight_decay)
        if optimiser == "sgd"
        else torch.optim.Adam(parameters, lr, weight_decay=weight_decay)
    )
    losses = []
    for batch in RAGGED:
        step.zero_grad()
        loss = loss_of(exact, x[batch], y[batch], "cross-entropy")
        losses.append(loss.item())
        total = loss + prox / 2 * sum(((p - q) ** 2).sum() for p, q in zip(parameters, start, strict=True))
        if linear is not None:
            flat = torch.cat([p.flatten() for p in parameters])
            total = total + (flat * torch.from_numpy(linear).double()).sum()
        total.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        step.step()
    return torch.cat([p.detach().flatten() for p in parameters]).numpy(), losses


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "weight decay": {"weight_decay": 0.1},
    "FedProx": {"prox": 0.5},
    "FedDyn": {"prox": 0.3, "linear": True},
    "clipped": {"clip": 0.05},
    "clipped, but long enough": {"clip": 100.0},
    "everything": {"momentum": 0.5, "weight_decay": 0.05, "prox": 0.2, "linear": True, "clip": 0.3},
}


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_torch(name: str, optimiser: str) -> None:
    model, settings = small_net(), dict(SETTINGS[name])
    row = row_of(model)
    if settings.get("linear"):
        settings["linear"] = np.random.default_rng(8).standard_normal(len(row)).astype(
            np.float32
        ) * np.float32(0.1)
    if optimiser == "adam":
        settings.pop("momentum", None)
    lr = 0.2 if optimiser == "sgd" else 0.01
    exact, losses = reference(model, row, optimiser, lr=lr, **settings)
    plan = lanes.plan(model, SHAPE, "cross-entropy", optimiser)
    assert isinstance(plan, lanes.Plan)
    trained = row.copy()
    found = plan.trainer().fit(trained, *samples(), RAGGED, lr=lr, **settings)
    assert found == pytest.approx(losses, rel=3e-6)
    assert np.linalg.norm(trained - exact) <= 2e-5 * np.linalg.norm(exact - row)


def test_momentum_goes_on_where_it_stopped() -> None:
    model = small_net()
    x, y = samples()
    plan = lanes.plan(model, SHAPE, "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    at_once, in_two = row_of(model), row_of(model)
    plan.trainer().fit(at_once, x, y, RAGGED, lr=0.1, momentum=0.9)
    velocity = np.zeros_like(in_two)
    plan.trainer().fit(in_two, x, y, RAGGED[:2], lr=0.1, momentum=0.9, velocity=velocity)
    assert velocity.any()
    plan.trainer().fit(in_two, x, y, RAGGED[2:], lr=0.1, momentum=0.9, velocity=velocity)
    np.testing.assert_array_equal(at_once, in_two)


def test_squared_error_of_an_autoencoder() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(84, 12), nn.ReLU(), nn.Linear(12, 84), nn.Sigmoid(), nn.Unflatten(1, SHAPE)
    )
    x, _ = samples()
    plan = lanes.plan(model, SHAPE, "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    row = row_of(model)
    losses = plan.trainer().fit(row.copy(), x, x, RAGGED, lr=0.0)
    exact = load_row(model, row)
    assert losses == pytest.approx([loss_of(exact, x[b], x[b], "mse").item() for b in RAGGED], rel=2e-6)
    assert plan.trainer().forward(row, x).shape == (50, 84)


def test_running_statistics_of_batch_norm() -> None:
    """They move with every batch as PyTorch's do, and decide the way forward."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=0.3), nn.Tanh(), nn.Flatten())
    model.append(nn.Linear(60, 4))
    x, y = samples()
    plan = lanes.plan(model, SHAPE, "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    row = row_of(model)
    assert plan.parameters + 6 == len(row)
    trained, trainer = row.copy(), plan.trainer()
    trainer.fit(trained, x, y, RAGGED, lr=0.1)
    exact = load_row(model, row)
    step = torch.optim.SGD(exact.parameters(), 0.1)
    for batch in RAGGED:
        step.zero_grad()
        loss_of(exact, x[batch], y[batch], "cross-entropy").backward()
        step.step()
    np.testing.assert_allclose(trained, row_of(exact), rtol=1e-4, atol=1e-6)
    expected = exact.eval()(torch.from_numpy(x).double()).detach().numpy()
    np.testing.assert_allclose(trainer.forward(trained, x), expected, rtol=1e-4, atol=1e-5)
