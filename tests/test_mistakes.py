"""From Python, too, a mistake is one sentence, said where it is made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import covey
from covey.data import federate, from_tensors
from covey.data.types import Dataset, Federation
from covey.errors import RunError, UserError
from covey.fleet.local import LocalFleet
from covey.folder.read import read_run
from covey.methods.baselines import fedavg
from covey.parts.steps import Train

X, Y = torch.rand(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is made without a folder of its own goes to runs/ here."""
    monkeypatch.chdir(tmp_path)


def dataset(**changes: Any) -> Dataset:
    return from_tensors(**{"x": X, "y": Y, **changes})


def shared(**changes: Any) -> Federation:
    return federate(dataset(**changes), partition="iid", clients=4, seed=0)


def fleet(**changes: Any) -> LocalFleet:
    return LocalFleet(**{"data": shared(), "model": nn.Linear(4, 3), **changes})


def run(**changes: Any) -> Any:
    given = {"method": fedavg(Train(lr=0.1), per_round=2), "fleet": fleet(), "rounds": 1, **changes}
    return covey.run_rounds(given.pop("method"), given.pop("fleet"), **given)


def simulated(**changes: Any) -> Any:
    given = {
        "method": {"name": "fedavg", "per_round": 4},
        "data": dataset(),
        "clients": 4,
        "rounds": 1,
        "partition": {"name": "iid"},
        "progress": False,
        **changes,
    }
    return covey.run(**given)


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
        (lambda: run(rounds=0), "rounds is 0; allowed: a whole number, at least 1"),
        (lambda: dataset(x=X[:0], y=Y[:0]), "training data must have at least one sample"),
        (lambda: dataset(y=["a", "b", "c"] * 20), "labels must be numbers .* not texts"),
        (lambda: dataset(y=torch.nn.functional.one_hot(Y, 3)), "labels must be one whole number per sample"),
        (lambda: dataset(natural={"site": [["a"]] * 60}), r"natural\['site'\] must be 60 whole numbers"),
        (lambda: simulated(rounds=0), "rounds is 0; allowed: a whole number, at least 1"),
        (
            lambda: simulated(data=dataset(y=torch.rand(60))),
            "labels of own are torch.float32; give objective=",
        ),
        (lambda: simulated(objective="regression"), "objective is regression, but the labels of own are 3"),
        (lambda: simulated(data=X), "data is a Tensor; allowed: a .x, y. pair, a torch Dataset"),
        (lambda: simulated(method=fedavg), "method is a function; allowed: a name, a table"),
        (
            lambda: simulated(method={"name": "fedavg", "per_round": 9}),
            "per_round is 9, but data.clients is 4",
        ),
        (lambda: simulated(model=nn.Linear), "model is a type; allowed: a name, a table with a name, or"),
        (lambda: simulated(model=nn.Linear(4, 2)), "the model has 2 outputs, and data set 'own' 3 classes"),
        (lambda: simulated(model=nn.Linear(5, 3)), "the model cannot be trained on data set 'own'"),
        (lambda: simulated(data=dataset(x=X / 0)), "data set 'own': sample 0 holds NaN or infinity"),
        (lambda: simulated(model=nn.LazyLinear(3)), r"the model \(LazyLinear\) has lazy layers"),
        (lambda: simulated(metrics="macro-f1"), r"metrics is 'macro-f1'; allowed: a list, such as"),
        (lambda: simulated(watchers=[5]), r"watchers is \[5\]; allowed: a list of functions"),
        (lambda: simulated(lr=0.1), "lr is not known; did you mean train.lr?"),
        (lambda: simulated(clients=0), "data.clients is 0"),
        (lambda: simulated(clients=1000), "at most 48 clients"),
        (lambda: simulated(out=5), "out is 5; allowed: a folder's path"),
        (lambda: simulated(target=2), "target is 2; allowed: from 0 to 1"),
        (lambda: covey.compare("fedavg"), r"methods is 'fedavg'; allowed: a list, such as \['fedavg'\]"),
        (lambda: covey.load_models("nowhere"), "nowhere is not a run folder: there is no such folder"),
    ],
)
def test_a_mistake_is_one_sentence_where_it_is_made(mistake: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as said:
        mistake()
    assert "\n" not in str(said.value)


def test_numbers_may_be_numpys(tmp_path: Path) -> None:
    done = simulated(
        rounds=np.int32(2),
        clients=np.int64(4),
        seed=np.int64(3),
        train={"lr": np.float32(0.5), "epochs": np.int64(1)},
        model={"name": "mlp", "hidden": np.array([4])},
        target=np.float64(0.5),
        out=tmp_path / "r",
    )
    assert done.summary.rounds_done == 2
    assert "hidden = [\n    4,\n]" in (tmp_path / "r" / "config.toml").read_text()


def test_sites_may_have_names() -> None:
    """They are numbered in the order in which they appear: b, a."""
    data = dataset(natural={"site": ["b", "a"] * 30})
    assert data.natural["site"].tolist() == [0, 1] * 30
    assert len(federate(data, partition="natural", clients=2, seed=0).shares) == 2


def test_more_clients_per_round_than_there_are_is_said() -> None:
    with pytest.warns(UserWarning, match="per_round is 9, but there are 4 clients: all of them work"):
        run(method=fedavg(Train(lr=0.1), per_round=9))


@pytest.mark.parametrize("lr", [1e6, 1e9])
def test_training_that_diverges_is_one_sentence_in_the_first_round(lr: float) -> None:
    with pytest.raises(
        RunError, match=r"round 1: training diverges: .*; lower train.lr \(1e\+0[69]\)"
    ) as said:
        simulated(train={"lr": lr}, rounds=5)
    assert "\n" not in str(said.value)


def test_labels_with_gaps_are_said() -> None:
    with pytest.warns(UserWarning, match="labels run from 0 to 5, but 1, 3, 4 never occur; say classes="):
        data = dataset(y=torch.tensor([0, 2, 5])[Y])
    assert len(data.classes) == 6


def test_a_run_from_python_keeps_the_names_of_sites(tmp_path: Path) -> None:
    data = dataset(natural={"site": ["north", "south"] * 30})
    covey.run(
        {"name": "fedavg", "per_round": 2},
        data,
        clients=2,
        rounds=1,
        partition={"name": "natural"},
        out=tmp_path / "run",
        progress=False,
    )
    assert read_run(tmp_path / "run").client_names == {0: "north", 1: "south"}
