"""One step's gradient is PyTorch's in float64, for every layer alone and in models, on random shapes."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from lanes_reference import gradient, row_of
from torch import nn

from covey import lanes

CLOSE = 5e-6  # relative error of a gradient
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


def check(model: nn.Module, shape: tuple[int, ...], samples: int, seed: int, objective: str) -> None:
    """Momentum's first step is the gradient itself, not yet rounded by adding it to the weights."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, *shape), dtype=np.float32)
    plan = lanes.plan(model, shape, objective, "sgd")
    assert isinstance(plan, lanes.Plan), plan
    outputs = plan.chain.output.features
    if objective == "cross-entropy":
        y = rng.integers(0, outputs, samples)
    else:
        y = rng.standard_normal((samples, outputs), dtype=np.float32)
    row = row_of(model)
    loss, exact, tie = gradient(model, row, x, y, objective)
    assume(not tie)
    found, changed = np.zeros_like(row), row.copy()
    batches = [rng.permutation(samples)]
    losses = plan.trainer().fit(changed, x, y, batches, lr=0.5, momentum=0.9, velocity=found)
    assert losses == pytest.approx([loss], rel=2e-6)
    start = 0
    for name, parameter in model.named_parameters():
        part = slice(start, start + parameter.numel())
        scale = max(np.linalg.norm(exact[part]), 1e-2 * np.linalg.norm(exact))
        assert np.linalg.norm(found[part] - exact[part]) <= CLOSE * scale, name
        start += parameter.numel()
    np.testing.assert_allclose(changed, row - np.float32(0.5) * found, rtol=1e-6, atol=1e-7)


ACTIVATIONS = {"none": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
seeds = st.integers(0, 2**31 - 1)
samples = st.integers(1, 40)


@quick
@given(
    inputs=st.integers(1, 70),
    outputs=st.integers(2, 40),
    bias=st.booleans(),
    samples=samples,
    seed=seeds,
    objective=st.sampled_from(["cross-entropy", "mse"]),
)
def test_a_linear_layer(
    inputs: int, outputs: int, bias: bool, samples: int, seed: int, objective: str
) -> None:
    torch.manual_seed(seed)
    check(nn.Sequential(nn.Linear(inputs, outputs, bias=bias)), (inputs,), samples, seed, objective)


@quick
@given(
    sizes=st.lists(st.integers(1, 45), min_size=2, max_size=4),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    samples=samples,
    seed=seeds,
)
def test_a_multilayer_perceptron(sizes: list[int], activation: str, samples: int, seed: int) -> None:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), ACTIVATIONS[activation]()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 5))
    check(model, (sizes[0],), samples, seed, "cross-entropy")


@quick
@given(data=st.data(), samples=st.integers(1, 20), seed=seeds)
def test_two_convolutions_of_any_size(data: st.DataObject, samples: int, seed: int) -> None:
    """Channels, kernels and paddings at random; activation and pooling in either order, or neither."""
    torch.manual_seed(seed)
    draw = data.draw
    shape = draw(st.tuples(st.integers(1, 5), st.integers(5, 12), st.integers(5, 12)))
    channels, height, width = shape
    layers: list[nn.Module] = []
    for _ in range(2):
        kernel = (draw(st.integers(1, min(5, height))), draw(st.integers(1, min(5, width))))
        padding = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        layers.append(
            nn.Conv2d(channels, draw(st.integers(1, 9)), kernel, padding=padding, bias=draw(st.booleans()))
        )
        channels = layers[-1].out_channels
        height, width = height + 2 * padding[0] - kernel[0] + 1, width + 2 * padding[1] - kernel[1] + 1
        after: list[nn.Module] = [ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]()]
        if height > 1 and width > 1 and draw(st.booleans()):
            after.insert(draw(st.integers(0, 1)), nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers += after
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 4)]
    check(nn.Sequential(*layers), shape, samples, seed, "cross-entropy")
