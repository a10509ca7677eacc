"""Gradients sample by sample: their lengths are Opacus', and weighted steps are those of the clipped gradients."""

import copy
import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

import lanes
from covey.training.models import build
from lanes.compiled.apart import ARGUMENTS
from tests.lanes.reference import row_of


def opacus_gradients(
    model: nn.Module, x: NDArray[Any], y: NDArray[Any], objective: str
) -> NDArray[np.float64]:
    """The gradient of every sample's loss as Opacus has it, one row each."""
    opacus = pytest.importorskip("opacus")
    private = opacus.GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    out = private(torch.from_numpy(x))
    if objective == "cross-entropy":
        F.cross_entropy(out, torch.from_numpy(y), reduction="sum").backward()
    else:
        (F.mse_loss(out, torch.from_numpy(y)) * len(x)).backward()
    parts = [parameter.grad_sample.reshape(len(x), -1) for parameter in private.parameters()]
    return torch.cat(parts, 1).double().numpy()


def strided() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(5, 4, (2, 3), bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 3, 6, bias=False),
        nn.Sigmoid(),
        nn.Linear(6, 10),
    )


CASES: dict[str, tuple[tuple[int, ...], str]] = {
    "softmax": ((1, 8, 8), "cross-entropy"),
    "mlp": ((1, 8, 8), "cross-entropy"),
    "lenet5": ((1, 28, 28), "cross-entropy"),
    "strided": ((2, 10, 10), "mse"),
}


def case(name: str, samples: int) -> tuple[lanes.Plan, nn.Module, NDArray[Any], NDArray[Any], str]:
    shape, objective = CASES[name]
    torch.manual_seed(3)
    model = strided() if name == "strided" else build(name, input_shape=shape, outputs=10, seed=3)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((samples, *shape), dtype=np.float32)
    y = (
        rng.integers(0, 10, samples)
        if objective == "cross-entropy"
        else rng.standard_normal((samples, 10), np.float32)
    )
    plan = lanes.plan(model, shape, objective, "sgd")  # type: ignore[arg-type]
    assert isinstance(plan, lanes.Plan), plan
    return plan, model, x, y, objective


@pytest.mark.parametrize("samples", [1, 21])
@pytest.mark.parametrize("name", CASES)
def test_lengths_of_single_gradients_are_those_of_opacus(name: str, samples: int) -> None:
    plan, model, x, y, objective = case(name, samples)
    found = plan.trainer().lengths(row_of(model), x, y)
    exact = np.linalg.norm(opacus_gradients(model, x, y, objective), axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_weighted_step_is_the_sum_of_clipped_gradients_of_opacus(name: str) -> None:
    plan, model, x, y, objective = case(name, 21)
    row = row_of(model)
    trainer = plan.trainer()
    length = trainer.lengths(row, x, y)
    clip = float(np.median(length))
    weights = np.minimum(1, clip / length).astype(np.float32)
    assert 0 < (weights < 1).mean() < 1
    gradient = np.zeros(plan.parameters, np.float32)  # momentum's first step is the gradient itself
    trainer.fit(row, x, y, [np.arange(21)], lr=0.1, momentum=0.9, velocity=gradient, weights=weights)
    single = opacus_gradients(model, x, y, objective)
    factors = np.minimum(1, clip / np.linalg.norm(single, axis=1))
    exact = (factors[:, None] * single).mean(axis=0)
    assert np.linalg.norm(gradient - exact) <= 1e-5 * np.linalg.norm(exact)


def test_a_weight_of_nothing_leaves_a_sample_out() -> None:
    plan, model, x, y, _ = case("mlp", 4)
    one, other = row_of(model), row_of(model)
    weights = np.array([2, 0, 2, 0], np.float32)
    plan.trainer().fit(one, x, y, [np.arange(4)], lr=0.1, weights=weights)
    plan.trainer().fit(other, x, y, [np.array([0, 2])], lr=0.1)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_layers_that_mix_samples_have_no_lengths() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 10))
    plan = lanes.plan(model, (1, 8, 8), "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    x = np.zeros((2, 1, 8, 8), np.float32)
    with pytest.raises(ValueError, match="batch normalisation mixes samples"):
        plan.trainer().lengths(row_of(model), x, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="2 samples but 1 weights"):
        plan.trainer().fit(
            row_of(model), x, np.zeros(2, np.int64), [np.arange(2)], lr=0.1, weights=np.ones(1, np.float32)
        )


def test_what_a_call_writes_to_is_there_until_it_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, model, x, y, _ = case("softmax", 40)
    trainer, row = plan.trainer(), row_of(model)
    written: list[int] = []

    def run(_result: int, _error: int, calls: int, count: int) -> int:
        assert count == 1
        losses = int(
            np.ctypeslib.as_array((ctypes.c_int64 * ARGUMENTS).from_address(calls))[-6]
        )  # then five flags
        fresh = [np.zeros(1) for _ in range(100)]  # of the size of the losses of one batch
        written.append(losses)
        assert losses not in {array.ctypes.data for array in fresh}
        return 0

    monkeypatch.setattr(trainer, "_run", run)
    trainer.lengths(row, x, y)
    trainer.forward(row, x[:1])
    assert len(written) == 2
