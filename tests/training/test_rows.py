"""A model as one row: what is in it, what is not, and what a bench makes of it."""

import numpy as np
import pytest
import torch
from torch import nn

from covey.training.bench import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.objective import Classification, Regression
from covey.training.rows import Layout, flatten, fresh_row, read_row, write_row


def with_buffers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 10)
    )


def test_a_row_holds_parameters_then_float_buffers_and_no_counters() -> None:
    model = with_buffers()
    layout = Layout.of(model)
    assert layout.trainable == 30 + 6 + 1090
    assert layout.size == layout.trainable + 6  # running mean and variance of three channels
    assert "1.num_batches_tracked" not in layout.names
    assert layout.names[-2:] == ("1.running_mean", "1.running_var")


def test_reading_what_was_written() -> None:
    model = with_buffers()
    row = torch.randn(Layout.of(model).size)
    write_row(model, row)
    assert torch.equal(read_row(model), row)


def test_a_flat_model_computes_the_same_and_shares_its_memory() -> None:
    model, again = with_buffers(), with_buffers()
    x = torch.randn(4, 1, 8, 8)
    flat, gradient = flatten(again)
    assert torch.equal(model(x), again(x))
    model(x).sum().backward()
    again(x).sum().backward()
    assert torch.equal(gradient, torch.cat([p.grad.flatten() for p in model.parameters()]))  # type: ignore[union-attr]
    flat.zero_()
    assert all(not p.any() for p in again.parameters())


def test_a_new_start_is_another_one_but_always_the_same() -> None:
    model = with_buffers()
    assert torch.equal(fresh_row(model, 1, 0), read_row(model))
    assert torch.equal(fresh_row(model, 1, 2), fresh_row(model, 1, 2))
    assert not torch.equal(fresh_row(model, 1, 1), fresh_row(model, 1, 2))


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(lr=0.1),
        Recipe(lr=0.1, momentum=0.9, weight_decay=0.01),
        Recipe(optimiser="adam", lr=0.01, weight_decay=0.01),
    ],
)
def test_the_bench_makes_the_steps_of_torchs_optimisers(recipe: Recipe) -> None:
    bench = TorchBench(with_buffers(), Classification())
    model = with_buffers()
    x, y = torch.randn(20, 1, 8, 8), torch.randint(0, 10, (20,))
    batches = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 20)]
    fit = bench.fit(read_row(model), x, y, batches, recipe, seed=1)
    settings = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    optimiser = (
        torch.optim.Adam(model.parameters(), **settings)
        if recipe.optimiser == "adam"
        else torch.optim.SGD(model.parameters(), momentum=recipe.momentum, **settings)
    )
    losses = []
    for batch in batches:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    assert torch.allclose(fit.row, read_row(model), atol=1e-6)
    assert np.allclose(fit.losses, losses, atol=1e-6)


def test_the_proximal_and_the_linear_term_are_those_of_the_formula() -> None:
    """One weight, squared error to 0, worked by hand: v <- v - lr (2 v x^2 + prox (v - start) + linear)."""
    model = nn.Linear(1, 1, bias=False)
    bench = TorchBench(model, Regression())
    x, y = torch.tensor([[1.0]]), torch.tensor([[0.0]])
    fit = bench.fit(
        torch.tensor([2.0]),
        x,
        y,
        [np.array([0])] * 2,
        Recipe(lr=0.1, prox=0.5),
        seed=0,
        linear=torch.tensor([1.0]),
    )
    first = 2.0 - 0.1 * (4.0 + 0.0 + 1.0)  # 1.5
    second = first - 0.1 * (2 * first + 0.5 * (first - 2.0) + 1.0)  # 1.125
    assert fit.row.item() == pytest.approx(second) == pytest.approx(1.125)


def test_gradients_are_clipped_by_their_norm() -> None:
    bench = TorchBench(nn.Linear(1, 1, bias=False), Regression())
    x, y = torch.tensor([[1.0]]), torch.tensor([[0.0]])
    fit = bench.fit(torch.tensor([2.0]), x, y, [np.array([0])], Recipe(lr=0.1, clip=1.0), seed=0)
    assert fit.row.item() == pytest.approx(1.9, abs=1e-5)


def test_dropout_follows_the_given_seed_only() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    bench = TorchBench(model, Classification())
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
    rows = [bench.fit(read_row(model), x, y, [np.arange(8)], Recipe(lr=0.1), seed=s).row for s in (1, 1, 2)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
