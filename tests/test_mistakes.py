"""From Python, too, a mistake is one sentence, said where it is made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import covey
from covey.data import federate, from_tensors
from covey.data.types import Dataset, Federation
from covey.errors import UserError
from covey.fleet.local import LocalFleet
from covey.methods import fedavg
from covey.steps import Train

X, Y = torch.rand(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


def dataset(**changes: Any) -> Dataset:
    return from_tensors(**{"x": X, "y": Y, **changes})


def shared(**changes: Any) -> Federation:
    return federate(dataset(**changes), partition="iid", clients=4, seed=0)


def fleet(**changes: Any) -> LocalFleet:
    return LocalFleet(**{"data": shared(), "model": nn.Linear(4, 3), **changes})


def run(**changes: Any) -> Any:
    given = {"method": fedavg(Train(lr=0.1), per_round=2), "fleet": fleet(), "rounds": 1, **changes}
    return covey.run(given.pop("method"), given.pop("fleet"), **given)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (
            lambda: dataset(natural={"site": np.linspace(0, 1, 60)}),
            r"natural\['site'\] holds float64; allowed: whole",
        ),
        (lambda: dataset(natural={"site": np.zeros(3, int)}), r"natural\['site'\] must be 60 whole numbers"),
        (lambda: dataset(y=Y + 1), r"labels run from 1 to 3; allowed: whole numbers from 0 on \(y - 1\)"),
        (lambda: dataset(y=Y - 1), "labels run from -1 to 1"),
        (lambda: dataset(x=["a"] * 60), "inputs must be numbers"),
        (lambda: dataset(y=Y[:50]), "as many inputs as labels"),
        (lambda: dataset(classes=["a", "b"]), "labels run from 0 to 2, but there are 2 classes"),
        (lambda: dataset(test_fraction=2), "test_fraction is 2"),
        (
            lambda: fleet(data=shared(y=torch.rand(60))),
            "the labels of own are torch.float32; give objective=",
        ),
        (lambda: fleet(data=dataset()), r"data is a Dataset; it must be covey.federate"),
        (lambda: fleet(model=nn.Linear), r"model is a type; it must be a torch.nn.Module, made"),
        (lambda: fleet(objective="regression"), "objective is 'regression'; it must be one such as"),
        (lambda: fleet(devices={"dropout": 0.1}), r"devices is a dict; it must be covey.Devices"),
        (
            lambda: federate(dataset(), partition="iid", clients="4", seed=0),
            "clients is '4'; allowed: a whole",
        ),
        (lambda: federate(dataset(), partition="iid", clients=4, seed="x"), "seed is 'x'; allowed: a whole"),
        (lambda: federate(dataset(), partition="iid", clients=100, seed=0), "at most 48 clients"),
        (lambda: federate(dataset(), partition="idd", clients=4, seed=0), "did you mean iid?"),
        (
            lambda: federate("digits", partition="iid", clients=4, seed=0),
            "dataset is 'digits'; allowed: a Dataset",
        ),
        (lambda: Train(learning_rate=0.1), r"train.learning_rate is not known"),
        (lambda: Train(lr="0.1"), r"train.lr is '0.1'; allowed: a number above 0"),
        (lambda: fedavg(Train(), per_rond=5), "per_rond is not known; did you mean per_round?"),
        (lambda: fedavg(per_round=5), "missing a required argument: 'train'"),
        (lambda: fedavg({"lr": 0.1}), r"train is \{'lr': 0.1\}; allowed: a Train"),
        (lambda: fedavg(Train(), per_round=2.5), "per_round is 2.5; allowed: a whole number"),
        (lambda: fedavg(Train(), per_round="5"), "per_round is '5'; allowed: a whole number"),
        (lambda: fedavg(Train(), per_round=0), "per_round is 0"),
        (lambda: fedavg(Train(), weighting="sample"), "weighting is 'sample'; allowed: samples"),
        (lambda: run(method=fedavg), "method is a function; it must be a Method"),
        (lambda: run(fleet=shared()), "fleet is a Federation; it must be a fleet"),
        (lambda: run(rounds="5"), "rounds is '5'; allowed: a whole number"),
        (lambda: run(rounds=2.5), "rounds is 2.5; allowed: a whole number"),
    ],
)
def test_a_mistake_is_one_sentence_where_it_is_made(mistake: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as said:
        mistake()
    assert "\n" not in str(said.value)


def test_sites_may_have_names() -> None:
    """They are numbered in the order in which they appear: b, a."""
    data = dataset(natural={"site": ["b", "a"] * 30})
    assert data.natural["site"].tolist() == [0, 1] * 30
    assert len(federate(data, partition="natural", clients=2, seed=0).shares) == 2


def test_more_clients_per_round_than_there_are_is_said() -> None:
    with pytest.warns(UserWarning, match="per_round is 9, but there are 4 clients: all of them work"):
        run(method=fedavg(Train(lr=0.1), per_round=9))
