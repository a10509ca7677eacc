"""Which models lanes takes, how it reads them, and what it says of the others."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lanes
from covey.data.types import Scale
from covey.training.models import MODELS, build
from covey.training.models.encoders import autoencoder
from tests.lanes.reference import gradient, row_of


class Functional(nn.Module):
    """LeNet as many write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 8, 3, padding="same")
        self.drop = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(8 * 6 * 6, 20), nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = torch.relu(F.max_pool2d(self.drop(self.conv2(x)), (2, 2)))
        x = x.view(x.size(0), -1)
        x = F.dropout(self.fc1(x).tanh(), p=0.3, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class Reshaped(Functional):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = torch.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.sigmoid(self.fc1(torch.flatten(x.reshape(-1, 288).contiguous(), 1))))


def planned(
    model: nn.Module, shape: tuple[int, ...], objective: lanes.Objective = "cross-entropy"
) -> lanes.Plan:
    plan = lanes.plan(model, shape, objective, "sgd")
    assert isinstance(plan, lanes.Plan), plan
    return plan


@pytest.mark.parametrize("kind", [Functional, Reshaped])
def test_models_written_with_functions(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    x = np.random.default_rng(1).standard_normal((21, 1, 28, 28), dtype=np.float32)
    found = planned(model, (1, 28, 28)).trainer().forward(row_of(model), x)
    exact = model.eval()(torch.from_numpy(x)).detach().numpy()
    if kind is Functional:  # cross-entropy's own log-softmax does the last step
        found = torch.log_softmax(torch.from_numpy(found), 1).numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


def test_an_encoder_alone_runs_forward() -> None:
    model = build("ae-fc", input_shape=(1, 28, 28), outputs=1)
    encoder = model.encoder
    x = np.random.default_rng(1).random((40, 1, 28, 28), dtype=np.float32)
    found = planned(encoder, (1, 28, 28), "mse").trainer().forward(row_of(encoder), x)
    np.testing.assert_allclose(found, encoder(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-5)


class Arithmetic(nn.Module):
    """Fixed numbers around a layer, by channel and for all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(3 * 12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - x.new_tensor([0.3, -0.2]).view(-1, 1, 1)) / 0.7
        x = 1 - 0.5 * torch.tanh(self.layer(x)) * x.new_tensor([1.0, -2.0, 3.0]).view(1, 3, 1, 1)
        return self.last(x.flatten(1)) + 2


def test_fixed_numbers_of_channels() -> None:
    torch.manual_seed(4)
    model = Arithmetic()
    x = np.random.default_rng(1).standard_normal((19, 2, 3, 4), dtype=np.float32)
    trainer, row = planned(model, (2, 3, 4)).trainer(), row_of(model)
    np.testing.assert_allclose(
        trainer.forward(row, x), model(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-5
    )
    y, found = np.zeros(19, np.int64), np.zeros_like(row)
    _, exact, _ = gradient(model, row, x, y, "cross-entropy")
    trainer.fit(row, x, y, [np.arange(19)], lr=0.0, momentum=0.9, velocity=found)
    assert np.linalg.norm(found - exact) <= 5e-6 * np.linalg.norm(exact)


def test_autoencoders_of_standardised_pictures() -> None:
    model = autoencoder("ae-fc", (1, 28, 28), Scale((0.13,), (0.31,)))
    x = np.random.default_rng(1).standard_normal((20, 1, 28, 28), dtype=np.float32)
    found = planned(model, (1, 28, 28), "mse").trainer().forward(row_of(model), x)
    expected = model(torch.from_numpy(x)).detach().flatten(1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# Sequences are no images; trees are grown, not trained; attention is no layer of lanes.
@pytest.mark.parametrize(
    "name", sorted(set(MODELS) - {"cnn-series", "trees", "vit", "lstm", "tcn", "decoder", "huggingface"})
)
def test_the_papers_models(name: str) -> None:
    model = build(name, input_shape=(3, 32, 32), outputs=10)
    plan = planned(model, (3, 32, 32), "mse" if name.startswith("ae") else "cross-entropy")
    assert plan.parameters == sum(p.numel() for p in model.parameters())


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].weight.requires_grad = False
    return model


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


class Branching(Twice):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else x


class Mixing(Twice):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.view(4, -1).t())


class Loose(Twice):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "an unknown layer": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()), (4,), "GELU"),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), (4, 5, 5), "groups"),
    "padding that is not zero": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")),
        (4, 5, 5),
        "reflect",
    ),
    "a frozen parameter": (frozen, (4,), "0.weight is frozen"),
    "float64": (lambda: nn.Linear(4, 2).double(), (4,), "float64"),
    "a shared layer": (Twice, (4,), "used twice"),
    "a forward that branches": (Branching, (4,), "torch.fx"),
    "a view over samples": (Mixing, (4,), ""),
    "a parameter of no layer": (Loose, (4,), "extra"),
    "a sequence": (lambda: nn.Sequential(nn.Linear(4, 2)), (7, 4), "neither a vector nor an image"),
    "no parameters": (lambda: nn.Sequential(nn.ReLU()), (4,), "no parameters"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    make, shape, reason = REFUSED[name]
    refusal = lanes.plan(make(), shape, "cross-entropy", "sgd")
    assert isinstance(refusal, lanes.Refusal)
    assert refusal.reason
    assert reason in refusal.reason
    assert "\n" not in refusal.reason


def test_refused_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    model = nn.Sequential(nn.Linear(4, 2))
    assert lanes.plan(model, (4,), "cross-entropy", "sgd") == lanes.Refusal("numba is not installed")


def test_planning_leaves_the_model_and_the_random_state_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    before, state = row_of(model), torch.get_rng_state()
    planned(model, (4,))
    assert not model.training
    np.testing.assert_array_equal(row_of(model), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_info_is_plain() -> None:
    info = planned(nn.Sequential(nn.Linear(4, 2)), (4,)).info()
    assert info["trainer"] == "lanes"
    assert info["vector_width"] in (4, 8, 16)


BAD: dict[str, tuple[dict[str, np.ndarray | list[np.ndarray]], str]] = {
    "row": ({"row": np.zeros(3, np.float32)}, "row has shape"),
    "row of float64": ({"row": np.zeros(10)}, "float32"),
    "x": ({"x": np.zeros((5, 3), np.float32)}, "3 values"),
    "label": ({"y": np.array([0, 1, 2, 0, 0])}, "2 classes"),
    "answers": ({"y": np.zeros(4, np.int64)}, "4 answers"),
    "index": ({"batches": [np.array([0, 5])]}, "sample 5"),
    "negative index": ({"batches": [np.array([-1])]}, "-1"),
    "empty batch": ({"batches": [np.array([0]), np.array([], np.int64)]}, "empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments_are_caught_before_the_compiled_code(name: str) -> None:
    arguments = {
        "row": np.zeros(10, np.float32),
        "x": np.zeros((5, 4), np.float32),
        "y": np.zeros(5, np.int64),
        "batches": [np.arange(5)],
    }
    changed, reason = BAD[name]
    trainer = planned(nn.Sequential(nn.Linear(4, 2)), (4,)).trainer()
    with pytest.raises(ValueError, match=reason):
        trainer.fit(**(arguments | changed), lr=0.1)
