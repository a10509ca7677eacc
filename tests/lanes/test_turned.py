"""The gradient of a convolution's weights where images have few places: channels are in the lanes there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lanes
from lanes.compiled.isa import host
from lanes.compiled.operations import Operation
from tests.lanes.reference import gradient, row_of

CASES = {
    "one place": (nn.Conv2d(32, 9, 3, padding=1), 1),
    "four places": (nn.Conv2d(34, 20, 3, padding=1), 2),
    "with a stride": (nn.Conv2d(32, 17, 3, stride=2, padding=1), 5),
    "one by one": (nn.Conv2d(33, 16, 1, stride=2, bias=False), 4),
    "uneven": (nn.Conv2d(32, 3, (2, 3), padding=(0, 1)), 4),
}


def planned(layer: nn.Conv2d, size: int) -> tuple[nn.Module, lanes.Plan]:
    torch.manual_seed(size)
    model = nn.Sequential(nn.Conv2d(2, layer.in_channels, 1), nn.Tanh(), layer, nn.Tanh(), nn.Flatten())
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    plan = lanes.plan(model, (2, size, size), "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    return model, replace(plan, fast=frozenset())  # whatever this machine timed for such a layer


def operations(plan: lanes.Plan) -> list[int]:
    return plan.program("mse", 1).code[:, 0].tolist()


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_float64(name: str) -> None:
    layer, size = CASES[name]
    model, plan = planned(layer, size)
    assert operations(plan).count(Operation.TURNED_GRAD) == 1
    rng = np.random.default_rng(1)
    samples = 2 * host().lanes + 3
    x = rng.standard_normal((samples, 2, size, size), dtype=np.float32)
    y = rng.standard_normal((samples, plan.graph.output.features), dtype=np.float32)
    _, exact, _ = gradient(model, row_of(model), x, y, "mse")
    trainer = plan.trainer()
    for _ in range(2):  # what the first step added up must be gone in the second
        found = np.zeros(plan.parameters, np.float32)
        trainer.fit(row_of(model), x, y, [np.arange(samples)], lr=0.1, momentum=0.9, velocity=found)
        assert np.linalg.norm(found - exact) < 2e-6 * np.linalg.norm(exact)


def test_few_channels_and_large_images_keep_the_other_kernel() -> None:
    for layer, size in ((nn.Conv2d(31, 16, 3), 5), (nn.Conv2d(32, 16, 3, stride=2), 19)):
        assert Operation.TURNED_GRAD not in operations(planned(layer, size)[1])
