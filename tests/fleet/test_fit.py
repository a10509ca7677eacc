"""Mistakes that every client would make are one sentence before the first, from Python as from a file."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from covey.core.round import run_rounds
from covey.data import from_tensors
from covey.data.types import Dataset, Federation
from covey.errors import UserError
from covey.fleet.engine import Engine
from covey.fleet.fit import check_outputs
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.testing import small_federation
from covey.training.models import build
from covey.training.objective import Classification, Regression


def changed(change: Callable[[Dataset], Dataset]) -> Federation:
    """The small federation on another data set."""
    data = small_federation()
    dataset = change(data.dataset)
    shares = tuple(
        replace(s, train=replace(s.train, dataset=dataset), test=replace(s.test, dataset=dataset))
        for s in data.shares
    )
    return replace(data, dataset=dataset, shares=shares, test=replace(data.test, dataset=dataset))


def trained(data: Federation, outputs: int = 10, **settings: object) -> None:
    model = build("mlp", input_shape=(1, 8, 8), outputs=outputs)
    fleet = LocalFleet(data, model, engine=Engine(mode="serial", lanes=False), **settings)  # type: ignore[arg-type]
    run_rounds(fedavg(Train(lr=0.1, epochs=1), per_round=3), fleet, rounds=1)


def test_a_model_with_too_few_outputs() -> None:
    with pytest.raises(UserError, match="the model has 3 outputs, and data set 'digits' 10 classes"):
        trained(small_federation(), outputs=3)
    trained(small_federation(), outputs=12)  # more are allowed


def test_a_value_that_is_none() -> None:
    def broken(dataset: Dataset) -> Dataset:
        x = dataset.x.float()
        x[5, 0, 3, 3] = torch.nan
        return replace(dataset, x=x)

    with pytest.raises(UserError, match="data set 'digits': sample 5 holds NaN or infinity"):
        trained(changed(broken))


def test_a_label_without_a_class() -> None:
    with pytest.raises(UserError, match="has the label 12; allowed: 0 to 9"):
        trained(changed(lambda dataset: replace(dataset, y=dataset.y + 3)))
    with pytest.raises(UserError, match="has the label -1; allowed: 0 to 9"):
        trained(changed(lambda dataset: replace(dataset, y=dataset.y - 1)))


def test_samples_of_another_shape_than_the_models() -> None:
    with pytest.raises(
        UserError, match=r"cannot be trained on data set 'digits', whose samples have shape \(1, 4"
    ):
        trained(changed(lambda dataset: replace(dataset, x=dataset.x[:, :, :4])))


def test_a_target_that_is_none() -> None:
    def broken(dataset: Dataset) -> Dataset:
        y = dataset.y.float()
        y[7] = torch.inf
        return replace(dataset, y=y, classes=())

    with pytest.raises(UserError, match="the target of sample 7 holds NaN or infinity"):
        trained(changed(broken), outputs=1, objective=Regression())


class Pair(torch.nn.Linear):
    """Gives more than one thing."""

    def forward(self, x: torch.Tensor) -> object:  # type: ignore[override]
        return super().forward(x.flatten(1)), 1


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (torch.nn.Flatten(), r"the model \(Flatten\) has no parameter that can be trained"),
        (
            torch.nn.Linear(64, 10).requires_grad_(False),
            r"the model \(Linear\) has no parameter that can be trained",
        ),
        (
            torch.nn.Linear(64, 10).half(),
            r"parameters of torch.float16; allowed: torch.float32 \(model.float\(\)\)",
        ),
        (torch.nn.Linear(64, 10).double(), "parameters of torch.float64"),
        (Pair(64, 10), "the model gives a tuple; it must give one tensor"),
    ],
)
def test_a_model_that_cannot_be_trained(model: torch.nn.Module, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run_rounds(
            fedavg(Train(), per_round=3),
            LocalFleet(small_federation(), model, engine=Engine(mode="serial")),
            rounds=1,
        )


def test_one_class_is_none() -> None:
    def alike(dataset: Dataset) -> Dataset:
        return replace(dataset, y=torch.zeros_like(dataset.y), classes=("only",))

    with pytest.raises(
        UserError, match="the labels of digits are all 'only'; to classify there must be two classes"
    ):
        trained(changed(alike))


def test_a_token_that_the_model_does_not_know_is_one_sentence() -> None:
    x = torch.zeros(40, 3, dtype=torch.int64)
    x[-1, 0] = 7
    data = from_tensors(x, torch.arange(40) % 2)
    check_outputs(build("lstm", input_shape=(3,), outputs=2, vocabulary=8), data, Classification())
    with pytest.raises(UserError, match=r"run up to 7, and .* set model.vocabulary to 8 or more"):
        check_outputs(build("lstm", input_shape=(3,), outputs=2, vocabulary=7), data, Classification())
    with pytest.raises(
        UserError, match=r"whose samples are tokens \(for lstm, tcn, decoder\) of shape \(3,\)"
    ):
        check_outputs(build("mlp", input_shape=(3,), outputs=2), data, Classification())
    assert data.x.sum() == 7
