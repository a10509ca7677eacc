"""Dropout: the right share of values is dropped, by the seed alone, and only in training."""

import numpy as np
import pytest
import torch
from torch import nn

import lanes
from tests.lanes.reference import row_of


def first_update(model: nn.Module, shape: tuple[int, ...], x: np.ndarray, seed: int) -> np.ndarray:
    """The change of the last layer's weight, one row an output: minus the mean of (dropped) inputs times errors."""
    plan = lanes.plan(model, shape, "mse", "sgd")
    assert isinstance(plan, lanes.Plan), plan
    row, gradient = row_of(model), np.zeros(plan.parameters, np.float32)
    y = np.zeros((len(x), plan.graph.output.features), np.float32)
    plan.trainer().fit(
        row, x, y, [np.arange(len(x))], lr=0.0, momentum=1.0, velocity=gradient, dropout_seed=seed
    )
    return gradient


def probe(drop: nn.Module, width: int) -> nn.Sequential:
    """Output 1 + 0 * (dropped x): the gradient by weight i is twice the mean of the dropped x_i."""
    model = nn.Sequential(drop, nn.Flatten(), nn.Linear(width, 1))
    with torch.no_grad():
        model[-1].weight.zero_()
        model[-1].bias.fill_(1.0)
    return model


def test_dropped_and_kept_values_of_single_samples() -> None:
    width, share = 2000, 0.3
    model = probe(nn.Dropout(share), width)
    kept = first_update(model, (width,), np.ones((1, width), np.float32), 7)[:width] / 2
    np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.7], rtol=1e-6)
    assert abs((kept == 0).mean() - share) < 4 * np.sqrt(share * (1 - share) / width)


def test_samples_of_a_batch_are_dropped_independently() -> None:
    """Of n samples, the mean of the kept ones is binomial: mean 1 and variance p / (1 - p) / n."""
    width, share, count = 4000, 0.5, 37
    model = probe(nn.Dropout(share), width)
    means = first_update(model, (width,), np.ones((count, width), np.float32), 1)[:width] / 2
    assert means.mean() == pytest.approx(1, abs=0.02)
    assert means.var() == pytest.approx(share / (1 - share) / count, rel=0.1)


def test_dropout2d_drops_whole_channels() -> None:
    model = probe(nn.Dropout2d(0.4), 50 * 12)
    kept = first_update(model, (50, 3, 4), np.ones((1, 50, 3, 4), np.float32), 3)[:600].reshape(50, 12) / 2
    assert (kept == kept[:, :1]).all()
    np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.6], rtol=1e-6)


def test_the_seed_decides_and_nothing_else() -> None:
    model = probe(nn.Dropout(0.5), 300)
    x = np.ones((20, 300), np.float32)
    first = first_update(model, (300,), x, 11)
    np.testing.assert_array_equal(first, first_update(model, (300,), x, 11))
    assert (first != first_update(model, (300,), x, 12)).any()


def test_steps_and_layers_have_their_own_masks() -> None:
    """Twice the same batch, and twice the same layer: if masks were shared, products of them would show it."""
    width = 4000
    model = probe(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), width)
    both = first_update(model, (width,), np.ones((1, width), np.float32), 5)[:width]
    assert (both != 0).mean() == pytest.approx(0.25, abs=0.04)
    plan = lanes.plan(model, (width,), "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    gradient = np.zeros(plan.parameters, np.float32)
    x, y = np.ones((1, width), np.float32), np.zeros((1, 1), np.float32)
    batch = np.zeros(1, np.int64)
    plan.trainer().fit(
        row_of(model), x, y, [batch, batch], lr=0.0, momentum=1.0, velocity=gradient, dropout_seed=5
    )
    twice = (gradient[:width] == 16).mean()  # kept by both masks in both steps
    assert twice == pytest.approx(1 / 16, abs=0.02)


def test_the_gradient_passes_where_the_value_passed() -> None:
    """Linear(1 -> n, all ones), dropout, Linear(n -> 1, all ones): both weights see the same kept values."""
    width = 64
    model = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 1))
    with torch.no_grad():
        for layer in (model[0], model[3]):
            layer.weight.fill_(1.0)
            layer.bias.zero_()
    gradient = first_update(model, (1,), np.ones((1, 1), np.float32), 9)
    first, last = gradient[:width], gradient[2 * width : 3 * width]
    np.testing.assert_array_equal(first != 0, last != 0)
    assert 0.2 < (first != 0).mean() < 0.8


def test_no_dropout_forward() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(12, 5), nn.ReLU())
    plan = lanes.plan(model, (3, 2, 2), "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    x = np.random.default_rng(0).standard_normal((9, 3, 2, 2), dtype=np.float32)
    expected = model.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(plan.trainer().forward(row_of(model), x), expected, rtol=1e-5, atol=1e-6)
