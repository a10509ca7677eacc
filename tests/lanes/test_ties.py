"""Where rounding decides whether a ReLU is open: the gradient is that of one side or of the other, not a wrong one."""

import numpy as np
import torch
from torch import Tensor, nn

import lanes
from covey.training.models import build
from tests.lanes.reference import row_of

TIE = 8662  # of the second convolution's outputs


def gradient_in_double(model: nn.Sequential, x: Tensor, y: Tensor, *, other_side: bool) -> np.ndarray:
    """In float64; on request with the output `TIE` mirrored at zero, which shuts or opens its ReLU."""
    model.zero_grad()
    for number, layer in enumerate(model):
        x = layer(x)
        if number == 3 and other_side:
            mirrored = torch.zeros_like(x).flatten()
            mirrored[TIE] = -2 * x.detach().flatten()[TIE]
            x = x + mirrored.view_as(x)
    nn.functional.cross_entropy(x, y).backward()
    return np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])  # type: ignore[union-attr]


def test_a_relu_that_rounding_opens_explains_the_whole_difference() -> None:
    """One of 12,544 outputs is 2.6e-7 where their mean is 0.3: less than the float32 sums of 800 products are good for.

    By Winograd's method it comes out on the other side of zero, which changes the sample's gradient by 4.5e-3.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 1, 28, 28), dtype=np.float32)[407:408]
    y = rng.integers(0, 10, 600)[407:408]
    model = build("cnn-mnist", input_shape=(1, 28, 28), outputs=10, seed=1)
    assert isinstance(model, nn.Sequential)
    plan = lanes.plan(model, (1, 28, 28), "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    plan.compile()
    found = np.zeros(plan.parameters, np.float32)
    plan.trainer().fit(row_of(model), x, y, [np.arange(1)], lr=0.0, momentum=0.9, velocity=found)

    exact = model.double()
    before = exact[:4](torch.from_numpy(x).double()).detach().flatten()
    assert abs(before[TIE]) < 1e-6 * before.abs().mean()
    sides = [
        gradient_in_double(exact, torch.from_numpy(x).double(), torch.from_numpy(y), other_side=side)
        for side in (False, True)
    ]
    errors = [np.linalg.norm(found - side) / np.linalg.norm(side) for side in sides]
    assert min(errors) < 5e-6
    assert max(errors) > 1e-3
