"""Winograd convolutions whose transformed weights are larger than a cache: all blocks of a batch are done at once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lanes
from lanes.compiled.fast_instructions import Fast, Strip
from lanes.compiled.isa import KNOWN, Isa, host
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import shapes
from lanes.program import write
from lanes.stages import stages
from lanes.winograd import is_large
from tests.lanes.reference import by_parameter, gradient, row_of

CLOSE = 2e-5  # relative error against float64; the bound that is asked for is 1e-4
CASES = {
    "one tile": (nn.Conv2d(128, 136, 3, padding=1), 4, False),
    "uneven channels, then a maximum": (nn.Conv2d(130, 139, 3, padding=1), 8, True),
    "tiles reach over the border": (nn.Conv2d(128, 128, 3), 9, False),
    "5 x 5, no bias": (nn.Conv2d(96, 100, 5, padding=2, bias=False), 6, False),
}


def planned(layer: nn.Conv2d, size: int, pooled: bool) -> tuple[nn.Module, lanes.Plan]:
    """A model with that layer between two others, and the plan that does it by Winograd's method."""
    torch.manual_seed(size)
    first = nn.Conv2d(2, layer.in_channels, 1)
    middle = [layer, nn.MaxPool2d(2), nn.ReLU()] if pooled else [layer, nn.Tanh()]
    model = nn.Sequential(first, nn.Tanh(), *middle, nn.Flatten())
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.03 if parameter.dim() > 1 else 0.3)
    nn.init.normal_(first.weight)
    plan = lanes.plan(model, (2, size, size), "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    large = frozenset(n for n, stage in enumerate(stages(plan.graph)) if is_large(stage))
    assert len(large) == 1
    return model, replace(plan, fast=large)


def samples_of(plan: lanes.Plan, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    shape = plan.graph.input
    x = rng.standard_normal((count, shape.channels, shape.rows, shape.columns), dtype=np.float32)
    return x, rng.standard_normal((count, plan.graph.output.features), dtype=np.float32)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_float64(name: str) -> None:
    model, plan = planned(*CASES[name])
    operations = plan.program("mse", 3).code[:, 0].tolist()
    assert [operations.count(o) for o in (Operation.WHOLE_CONV, Operation.WHOLE_GRAD)] == [2, 1]
    count = 2 * host().lanes + 3
    x, y = samples_of(plan, count)
    trainer = plan.trainer()
    for batch in (np.arange(count), np.arange(5), np.arange(count)):  # a smaller one uses a part of the room
        _, exact, _ = gradient(model, row_of(model), x[batch], y[batch], "mse")
        found = np.zeros(plan.parameters, np.float32)
        trainer.fit(row_of(model), x, y, [batch], lr=0.1, momentum=0.9, velocity=found)
        for label, part in by_parameter(model):
            error = np.linalg.norm(found[part] - exact[part]) / np.linalg.norm(exact[part])
            assert error < CLOSE, label


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_direct_kernel(name: str) -> None:
    model, plan = planned(*CASES[name])
    x, _ = samples_of(plan, 21)
    fast, direct = (p.trainer().forward(row_of(model), x) for p in (plan, replace(plan, fast=frozenset())))
    np.testing.assert_allclose(fast, direct, atol=1e-4 * np.abs(direct).max())
    assert not np.array_equal(fast, direct)  # else nothing was compared


def test_optimisers_get_the_same_gradient_as_from_the_direct_kernel() -> None:
    """Weights are updated part after part: with clipping, only when the whole gradient is known."""
    model, plan = planned(*CASES["one tile"])
    x, y = samples_of(plan, 20)
    for settings in ({"clip": 0.01}, {"weight_decay": 0.1, "prox": 0.5}):
        rows = []
        for way in (plan, replace(plan, fast=frozenset())):
            row = row_of(model)
            way.trainer().fit(row, x, y, [np.arange(10), np.arange(10, 20)], lr=0.1, **settings)
            rows.append(row - row_of(model))
        assert np.linalg.norm(rows[0] - rows[1]) < 1e-4 * np.linalg.norm(rows[1])


def test_the_same_bits_from_any_number_of_threads_and_any_trainer() -> None:
    model, plan = planned(*CASES["uneven channels, then a maximum"])
    x, y = samples_of(plan, 40)

    def trained(trainer: lanes.Trainer, client: int) -> bytes:
        row, order = row_of(model), np.random.default_rng(client).permutation(40)
        trainer.fit(row, x, y, [order[:17], order[17:]], lr=0.1)
        return row.tobytes()

    used = plan.trainer()
    used.fit(
        row_of(model) * np.float32(1e30), x, y, [np.arange(40)], lr=1e30
    )  # infinities and NaN stay behind
    serial = [trained(used, client) for client in range(4)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda client: trained(plan.trainer(), client), range(4))) == serial


@pytest.mark.parametrize("isa", KNOWN.values(), ids=list(KNOWN))
def test_only_register_tiles_are_asked_for_that_exist(isa: Isa) -> None:
    for case in CASES.values():
        _, plan = planned(*case)
        program = write(plan.graph, isa, 2, "mse", fast=plan.chosen)
        names = [*Strip._fields, *Fast._fields]
        for row in (row[1:].tolist() for row in program.code if row[0] == Operation.WHOLE_CONV):
            fields = dict(zip(names, row, strict=False))
            assert (fields["rows"], fields["columns"]) in shapes(isa)
