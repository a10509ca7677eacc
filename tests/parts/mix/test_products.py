"""Adapters averaged by their products, with numbers worked out by hand."""

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.parts.mix.products import Product, pairs
from covey.runs.config import resolve
from covey.testing import small_fleet
from covey.training.models import build
from covey.training.rows import Layout

MLP = {"name": "mlp", "adapter": {"name": "lora", "rank": 2, "travels": "product"}}


def test_the_largest_singular_values_of_the_mean_product() -> None:
    # rank 1: A is (1, 0), B is (2, 0)' at one client, A is (0, 1), B is (0, 2)' at the other;
    # 3/4 and 1/4 of the products are diag(1.5, 0.5), of which rank 1 leaves diag(1.5, 0)
    rows = [torch.tensor([1.0, 0.0, 2.0, 0.0]), torch.tensor([0.0, 1.0, 0.0, 2.0])]
    new = Product(rank=1, inputs=2).combine(rows, np.array([0.75, 0.25]), rows[0])
    a, b = new[:2].view(1, 2), new[2:].view(2, 1)
    assert torch.allclose(b @ a, torch.tensor([[1.5, 0.0], [0.0, 0.0]]), atol=1e-6)
    assert float(a.norm()) == pytest.approx(1.5**0.5)
    assert float(b.norm()) == pytest.approx(1.5**0.5)
    # A and B each for itself: (1.5, 0.5)' (0.75, 0.25)
    plain = 0.75 * rows[0] + 0.25 * rows[1]
    assert torch.allclose(plain[2:, None] @ plain[None, :2], torch.tensor([[1.125, 0.375], [0.375, 0.125]]))


def test_a_and_b_of_a_layer_lie_side_by_side() -> None:
    layout = Layout.of(build(**MLP, input_shape=(1, 8, 8), outputs=10))
    # 64 inputs, 64 hidden units, 10 outputs, rank 2
    assert layout.names == ("1.A", "1.B", "3.A", "3.B")
    assert pairs(layout) == [
        (slice(0, 256), Product(rank=2, inputs=64)),
        (slice(256, 256 + 128 + 20), Product(rank=2, inputs=64)),
    ]


def test_a_round_averages_products() -> None:
    config = resolve({"method": {"name": "fedavg", "per_round": 3}, "model": MLP, "train": {"epochs": 1}})
    fleet = small_fleet(every=4, model=MLP)
    replies = []
    ask = fleet.ask
    fleet.ask = lambda *args, **more: replies.extend(ask(*args, **more)) or replies  # type: ignore[method-assign]
    state = run_rounds(config.method, fleet, rounds=1)
    total = sum(reply.size for reply in replies)
    mean = sum(
        reply.size / total * reply.vector[384:404].view(10, 2) @ reply.vector[256:384].view(2, 64)
        for reply in replies
    )
    u, s, v = np.linalg.svd(mean.numpy())
    best = (u[:, :2] * s[:2]) @ v[:2]
    found = state.models[0, 384:404].view(10, 2) @ state.models[0, 256:384].view(2, 64)
    assert np.allclose(found.numpy(), best, atol=1e-6)


def test_what_cannot_go_together_is_one_sentence() -> None:
    tables = {"model": MLP, "robust": {"name": "median"}}
    with pytest.raises(UserError, match='travels is "product", and robust'):
        _ = resolve({**tables, "method": {"name": "fedavg"}}).method
    with pytest.raises(UserError, match='travels is "product", but method median combines'):
        _ = resolve({"model": MLP, "method": {"name": "median"}}).method
