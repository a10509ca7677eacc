"""The defaults learn on every data set of the package; a run that does not learn says so, and why."""

import re

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.data import federate, from_clients
from covey.errors import RunError, UserError
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve
from covey.runs.learning import LearningWatch, guessing
from covey.settings.catalogue import DATASETS

# clients and rounds so small that the whole test takes seconds; cifar100 has 45 pictures per class here
FLEETS = {
    "digits": ({}, 5),
    "mnist": ({"clients": 200}, 8),
    "fashion-mnist": ({"clients": 200}, 6),
    "femnist": ({"clients": 60}, 12),
    "cifar10": ({"clients": 40}, 8),
    "svhn": ({"clients": 20}, 14),
    "cifar100": ({"clients": 10, "level": "coarse"}, 14),
    "emnist": ({"clients": 400}, 8),
    "pacs": ({"clients": 20, "side": 16}, 5),
    "breast-cancer": ({}, 5),
    "motions": ({}, 10),
    "emoji-names": ({}, 10),
    "heart": ({"clients": 4}, 5),
    "votes": ({"clients": 51}, 5),
    "exams": ({"clients": 131}, 5),
    "drawers": ({"clients": 40}, 20),
    "spoken-digits": ({"clients": 6}, 5),
    "watch": ({"clients": 10}, 5),
    "shakespeare": ({"clients": 60}, 10),
    "packages": ({"clients": 40}, 10),
    "milton": ({"clients": 5}, 5),
}
OTHERWISE = {"diabetes", "table", "images", "clients", "leaf"}  # real targets, below; the user's own files
OTHERWISE |= {"huggingface"}  # any set of the Hub
OTHERWISE |= {"schools", "reading"}  # real targets, too
OTHERWISE |= {"flights"}  # whole days are held out: almost nothing can be learnt


def test_no_data_set_of_the_package_is_left_out():
    assert {*FLEETS, *OTHERWISE} == set(DATASETS)


def test_the_default_training_beats_the_mean_on_real_targets():
    config = resolve({"data": {"name": "diabetes"}, "objective": "regression", "rounds": 5})
    fleet = fleet_of(config)
    try:
        found = []
        measure = Measuring(global_test=False, every=5)
        run_rounds(config.method, fleet, rounds=5, measure=measure, watchers=[found.append])
        of_the_mean = [float(share.test.labels().astype(float).var()) for share in fleet.data.shares]
        reached = found[-1].value("local-test", "mse-mean")
        assert reached < 0.8 * sum(of_the_mean) / len(of_the_mean)
    finally:
        fleet.close()


def accuracy(tables):
    config = resolve(tables)
    fleet = fleet_of(config)
    said = []
    try:
        watch = LearningWatch(config=config, say=said.append)
        measure = Measuring(global_test=False, every=1)
        found = []
        run_rounds(
            config.method,
            fleet,
            rounds=config.top.rounds,
            measure=measure,
            watchers=[watch, lambda end: found.append(end.value("local-test", "accuracy-mean"))],
        )
        return found[-1], guessing(fleet.data)[1], said
    finally:
        fleet.close()


LARGE = {
    "cifar10",
    "cifar100",
    "femnist",
    "pacs",
    "svhn",
    "drawers",
    "shakespeare",
    "packages",
    "milton",
    "spoken-digits",
    "exams",
    "votes",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in FLEETS]
)
def test_the_default_training_of_the_default_model_learns_more_than_guessing(name):
    data, rounds = FLEETS[name]
    natural = {"partition": {"name": "natural"}} if name == "femnist" else {"partition": {"name": "iid"}}
    try:
        reached, chance, said = accuracy({"data": {"name": name, **data}, "rounds": rounds, **natural})
    except UserError as error:
        pytest.skip(str(error))  # the data are not on this machine
    assert reached > chance + 0.08
    assert said == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train": {"lr": 1e-6}, "data": {"name": "digits", "scaling": "unit"}}, "not standardised"),
        ({"train": {"lr": 1e-6, "batch": 64, "epochs": 1}}, "only 2 batches"),
        ({"train": {"lr": 1e-6}}, "another train.lr than 1e-06"),
        (
            {"rounds": 1, "method": {"name": "boosting"}},
            "Rounds is 1, but boosting grows all its trees in 181",
        ),
    ],
)
def test_a_run_that_does_not_learn_says_so_once_and_why(settings, why):
    _, _, said = accuracy({"rounds": 3, "partition": {"name": "iid"}, **settings})
    assert len(said) == 1
    assert "better than guessing" in said[0]
    assert why in said[0]
    reached, chance = map(float, re.search(r"accuracy ([.\d]+), always '\w+' ([.\d]+)", said[0]).groups())
    assert ("no better than" in said[0]) == (reached <= chance)


def test_guessing_knows_what_always_one_class_gives_over_all_and_at_clients():
    """Of client 0's ten samples nine are "no", of client 1's two one: 10 of 12 in all, (.9 + .5) / 2 at clients."""
    x, y = torch.zeros(10, 3), np.array(["no"] * 9 + ["yes"])
    clients = {"a": (x, y), "b": (x[:2], y[-2:])}
    whole = from_clients({name: {"train": both, "test": both} for name, both in clients.items()})
    usual, overall, at_clients = guessing(federate(whole, partition="natural", clients=2, seed=0))
    assert (usual, overall, at_clients) == ("no", pytest.approx(10 / 12), pytest.approx(0.7))


def test_training_that_diverges_ends_the_run_at_once_and_names_the_learning_rate():
    with pytest.raises(RunError, match=r"training diverges.*lower train.lr \(50\)"):
        accuracy({"rounds": 3, "partition": {"name": "iid"}, "train": {"lr": 50.0}})


@pytest.mark.parametrize(("samples", "epochs"), [(1, 5), (60, 5), (160, 5), (200, 4), (400, 2), (1500, 1)])
def test_epochs_suit_the_client_about_fifty_batches_from_one_to_five_epochs(samples, epochs):
    # batches per epoch of 16: 1, 4, 10, 13, 25, 94; 50 / 13 = 3.8
    assert Train().epochs_for(samples) == epochs
    assert Train(epochs=7).epochs_for(samples) == 7
    assert Train().work(samples, 0) == epochs * samples
