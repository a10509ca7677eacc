"""One step's gradient is PyTorch's in float64, for every layer alone and in models, on random shapes."""

import os
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

import lanes
from tests.lanes.reference import by_parameter, gradient, row_of

CLOSE = 5e-6  # relative error of a gradient
quick = settings(
    max_examples=int(os.environ.get("COVEY_TEST_EXAMPLES", "25")),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def check(model: nn.Module, shape: tuple[int, ...], samples: int, seed: int, objective: str) -> None:
    """Momentum's first step is the gradient itself, not yet rounded by adding it to the weights."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, *shape), dtype=np.float32)
    plan = lanes.plan(model, shape, objective, "sgd")
    assert isinstance(plan, lanes.Plan), plan
    outputs = plan.graph.output.features
    if objective == "cross-entropy":
        y = rng.integers(0, outputs, samples)
    else:
        y = rng.standard_normal((samples, outputs), dtype=np.float32)
    row = row_of(model)
    loss, exact, tie = gradient(model, row, x, y, objective)
    assume(not tie)
    found, changed = np.zeros(plan.parameters, np.float32), row.copy()
    batches = [rng.permutation(samples)]
    losses = plan.trainer().fit(changed, x, y, batches, lr=0.5, momentum=0.9, velocity=found)
    assert losses == pytest.approx([loss], rel=2e-6)
    for name, part in by_parameter(model):
        scale = max(np.linalg.norm(exact[part]), 1e-2 * np.linalg.norm(exact))
        assert np.linalg.norm(found[part] - exact[part]) <= CLOSE * scale, name
    moved = row[: plan.parameters] - np.float32(0.5) * found
    np.testing.assert_allclose(changed[: plan.parameters], moved, rtol=1e-6, atol=1e-7)


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


@quick
@given(data=st.data(), samples=st.integers(1, 20), seed=seeds)
def test_strides_and_transposed_convolutions(data: st.DataObject, samples: int, seed: int) -> None:
    """Any kernel with any stride, there and back: the second of two is transposed."""
    torch.manual_seed(seed)
    draw = data.draw
    shape = draw(st.tuples(st.integers(1, 4), st.integers(5, 11), st.integers(5, 11)))
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    layers: list[nn.Module] = []
    channels = shape[0]
    for transposed in draw(st.permutations([False, True])):
        kernel, stride, padding = (
            draw(pair),
            draw(pair),
            draw(st.tuples(st.integers(0, 2), st.integers(0, 2))),
        )
        make = nn.ConvTranspose2d if transposed else nn.Conv2d
        out = draw(st.integers(1, 6))
        extra = {"output_padding": tuple(min(1, s - 1) for s in stride)} if transposed else {}
        layers.append(make(channels, out, kernel, stride, padding, bias=draw(st.booleans()), **extra))
        layers.append(ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]())
        channels = out
    try:
        size = nn.Sequential(*layers)(torch.zeros(2, *shape))[0].numel()
    except RuntimeError:  # the kernel is larger than the image
        assume(False)
    assume(size)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 3))
    check(model, shape, samples, seed, "cross-entropy")


@quick
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    mean=st.booleans(),
    padded=st.booleans(),
    seed=seeds,
)
def test_pooling_of_any_window(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    size: tuple[int, int],
    mean: bool,
    padded: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    padding = (kernel[0] // 2, kernel[1] // 2) if padded else 0
    pool = nn.AvgPool2d(kernel, stride) if mean else nn.MaxPool2d(kernel, stride, padding)
    front = [nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), pool]
    outputs = nn.Sequential(*front)(torch.zeros(2, 2, *size))[0].numel()
    check(nn.Sequential(*front, nn.Flatten(), nn.Linear(outputs, 4)), (2, *size), 7, seed, "cross-entropy")


class Block(nn.Module):
    """A residual block with batch norm, as in ResNet; the sum is used twice more."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 4, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.short = nn.Conv2d(channels, 4, 1, stride)
        self.last = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.tanh(self.norm(self.first(x)))
        b = self.second(a) + self.short(x)
        c = torch.sigmoid(b) + b
        return self.last(nn.functional.adaptive_avg_pool2d(c + a, 1).flatten(1))


@quick
@given(channels=st.integers(1, 5), stride=st.integers(1, 2), samples=st.integers(2, 40), seed=seeds)
def test_residual_blocks_with_batch_norm(channels: int, stride: int, samples: int, seed: int) -> None:
    torch.manual_seed(seed)
    check(Block(channels, stride), (channels, 6, 7), samples, seed, "cross-entropy")


@quick
@given(affine=st.booleans(), relu=st.booleans(), pool=st.booleans(), samples=st.integers(2, 40), seed=seeds)
def test_batch_norm(affine: bool, relu: bool, pool: bool, samples: int, seed: int) -> None:
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(3, affine=affine)
    if affine:
        nn.init.normal_(norm.weight)
    middle = [nn.ReLU()] * relu + [nn.MaxPool2d(2)] * pool
    size = 3 * 3 * 2 if pool else 3 * 7 * 5
    model = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), norm, *middle, nn.Flatten(), nn.Linear(size, 4))
    check(model, (2, 9, 7), samples, seed, "cross-entropy")
