"""HACCS on small fleets: clusters from private summaries, live updates, budgets, and what a user may get wrong."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import Method, State, empty_state, one_round, run_rounds
from covey.data import ClientShare, Dataset, Federation, Samples, load
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.haccs import haccs
from covey.methods.oort import oort
from covey.methods.power_of_choice import power_of_choice
from covey.methods.tifl import tifl
from covey.parts.steps import Train
from covey.parts.steps.train import only_used
from covey.runs.config import resolve
from covey.testing import check_method
from covey.training.models import build

TRAIN = Train(lr=0.1, batch=16, batches=1)
PAIRS = ((0, 1), (2, 3), (4, 5))


@cache
def digits() -> Dataset:
    return load("digits")


def federation(
    pairs: tuple[tuple[int, int], ...] = PAIRS, per_pair: int = 4, samples: int = 20
) -> Federation:
    """For every pair of digits some clients that hold only these two, equally often."""
    dataset = digits()
    labels = dataset.labels()
    shares = []
    for pair in pairs:
        pools = [dataset.train[labels[dataset.train] == label] for label in pair]
        for client in range(per_pair):
            part = np.concatenate([pool[client * samples : (client + 1) * samples] for pool in pools])
            shares.append(ClientShare(Samples(dataset, part), Samples(dataset, part)))
    return Federation(dataset, tuple(shares), Samples(dataset, dataset.test))


def fleet_of(data: Federation, devices: Devices | None = None) -> LocalFleet:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    return LocalFleet(data, model, devices=devices, seed=2, engine=Engine(mode="serial", lanes=False))


def states(method: Method, fleet: LocalFleet, rounds: int) -> list[State]:
    found = [empty_state(fleet)]
    for _ in range(rounds):
        found.append(one_round(method, found[-1], fleet))
    return found[1:]


def method(**settings: Any) -> Method:
    return haccs(TRAIN, **{"schedule": "published", "per_round": 3, "epsilon": None, **settings})


TRUTH = {client: client // 4 for client in range(12)}


# ------------------------------------------------------------------------------------------ clusters


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"distance": "hellinger"},
        {"summary": "joint"},
        {"summary": "joint", "epsilon": 100.0, "bins": 4},
        {"algorithm": "dbscan"},
        {"algorithm": "hdbscan"},
        {"epsilon": 2.0},
        {"epsilon": 2.0, "noise": "published"},
        {"epsilon": 2.0, "noise": "opendp"},
    ],
)
def test_like_clients_are_found_from_their_label_histograms(settings: dict[str, Any]) -> None:
    if settings.get("noise") == "opendp":
        pytest.importorskip("opendp")
    (state,) = states(method(**settings), fleet_of(federation()), 1)
    assert state.groups == TRUTH


def test_feature_histograms_separate_the_same_labels_that_look_different() -> None:
    data = federation(pairs=((0, 1),))
    pixels = data.dataset.x.clone()
    for share in data.shares[2:]:  # two of the four clients have a darker scanner
        pixels[share.train.index] = (pixels[share.train.index].float() * 0.4).byte()
    dataset = replace(data.dataset, x=pixels)
    shares = tuple(
        ClientShare(Samples(dataset, s.train.index), Samples(dataset, s.test.index)) for s in data.shares
    )
    data = Federation(dataset, shares, data.test)
    assert states(method(), fleet_of(data), 1)[0].groups == {0: 0, 1: 0, 2: 0, 3: 0}
    for settings in ({}, {"epsilon": 20.0}, {"epsilon": 20.0, "bound": 1.0}):
        by_features = method(summary="features", extract="dbscan", eps=0.15, **settings)
        assert states(by_features, fleet_of(data), 1)[0].groups == {0: 0, 1: 0, 2: 1, 3: 1}


def test_summaries_are_asked_once_and_cost_one_message_each_way() -> None:
    fleet = fleet_of(federation())
    run_rounds(method(), fleet, rounds=3)
    cost = fleet.ledger.total["query.labels"]
    assert cost.messages == 24
    assert cost.bytes_up == 12 * 10 * 8  # ten shares of eight bytes


def test_the_run_says_what_was_spent_and_what_protects() -> None:
    fleet = fleet_of(federation())
    state = run_rounds(method(epsilon=0.5), fleet, rounds=2)
    assert fleet.ledger.epsilon == dict.fromkeys(range(12), 0.5)
    assert "epsilon 0.5" in state.notes["privacy"]["text"]
    assert sum(state.notes["clusters"]["clients"]) == 12
    assert len(state.notes["labels"]["shares"]) == 12
    exact = fleet_of(federation())
    run_rounds(method(), exact, rounds=1)
    assert exact.ledger.epsilon == {}


# ------------------------------------------------------------------------------------------ live updates


def test_an_unseen_client_is_placed_with_its_like_and_nobody_else_moves() -> None:
    devices = Devices(joins=[{"clients": [5], "round": 3}])
    found = states(method(), fleet_of(federation(), devices), 3)
    assert 5 not in found[1].groups
    assert found[2].groups == {**found[1].groups, 5: found[1].groups[4]}


def test_an_unseen_client_unlike_everybody_starts_a_cluster() -> None:
    data = federation(pairs=((0, 1), (2, 3), (7, 8)))
    devices = Devices(joins=[{"clients": [8, 9, 10, 11], "round": 2}])
    found = states(method(recluster=1.0), fleet_of(data, devices), 2)
    assert [found[1].groups[i] for i in range(12)] == [0] * 4 + [1] * 4 + [2] * 4
    assert {i: found[1].groups[i] for i in range(8)} == found[0].groups


def test_a_device_whose_data_changed_is_moved_at_its_round_and_pays_again() -> None:
    # From round 3 on client 4 holds labels 2 - 2 = 0 and 3 - 2 = 1: like clients 0 to 3.
    devices = Devices(drifts=[{"clients": [4], "round": 3, "label_offset": 2}])
    fleet = fleet_of(federation(), devices)
    found = states(method(watch=1, epsilon=5.0), fleet, 4)
    assert found[1].groups == TRUTH
    assert found[2].groups == {**TRUTH, 4: 0}
    assert found[3].groups == found[2].groups
    assert fleet.ledger.epsilon == {**dict.fromkeys(range(12), 5.0), 4: 10.0}


def test_without_watching_a_change_is_not_noticed() -> None:
    devices = Devices(drifts=[{"clients": [4], "round": 2, "label_offset": 2}])
    assert states(method(), fleet_of(federation(), devices), 3)[2].groups == TRUTH


def test_everything_is_clustered_anew_when_enough_changed() -> None:
    # Half of the first pair's clients turn into the second's: 2 of 12 clients are more than a tenth.
    devices = Devices(drifts=[{"clients": [0, 1], "round": 2, "label_offset": 8}])
    keeps, anew = (
        states(method(watch=1, recluster=share), fleet_of(federation(), devices), 2)[1]
        for share in (0.5, 0.1)
    )
    assert keeps.memory["summaries"]["changed"] == 2
    assert anew.memory["summaries"]["changed"] == 0
    assert [keeps.groups[i] for i in range(12)] == [1, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    # Clusters are numbered by their first member, so the new numbers differ but the sets are the same.
    assert [anew.groups[i] for i in range(12)] == [0, 0, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2]


def test_beyond_its_budget_a_client_refuses_and_stays_where_it_was() -> None:
    devices = Devices(drifts=[{"clients": [4], "round": 2, "label_offset": 2}])
    fleet = fleet_of(federation(), devices)
    found = states(method(watch=1, epsilon=5.0, budget=7.0), fleet, 3)
    assert found[2].groups == TRUTH
    assert fleet.ledger.epsilon[4] == 5.0
    assert fleet.ledger.refused == 2  # in rounds 2 and 3
    assert "5 of the budget of 7 is spent" in fleet.ledger.last_problem()


def test_a_client_that_never_tells_works_as_a_cluster_of_its_own() -> None:
    fleet = fleet_of(federation(), Devices(loss=0.3))
    found = states(method(per_round=6), fleet, 1)[0]
    told = set(found.memory["summaries"]["ids"].tolist())
    silent = set(range(12)) - told
    assert silent
    assert len({found.groups[i] for i in silent}) == len(silent)
    assert not {found.groups[i] for i in silent} & {found.groups[i] for i in told}


# ------------------------------------------------------------------------------------------ schedule


def test_the_fastest_of_each_cluster_work_and_the_next_fastest_when_one_is_away() -> None:
    slow = [{"clients": [i], "compute": 1.0 + i % 4} for i in range(12)]
    devices = Devices(special=slow, leaves=[{"clients": [0], "round": 4}])
    worked: list[set[int]] = []
    fleet = fleet_of(federation(), devices)
    state = empty_state(fleet)
    for _ in range(12):
        state = one_round(method(per_round=1, rho=0.0), state, fleet)
        worked.append({busy.client for busy in fleet.ledger.busy})
    assert set().union(*worked[:3]) <= {0, 4, 8}
    assert set().union(*worked[3:]) <= {1, 4, 8}
    assert 1 in set().union(*worked[3:])


def test_a_slow_cluster_is_drawn_less_often_as_rho_grows() -> None:
    slow = Devices(pace=0.1, special=[{"clients": [8, 9, 10, 11], "compute": 3.0}])
    shares = []
    for rho in (0.0, 1.0):
        fleet = fleet_of(federation(), slow)
        state, drawn = empty_state(fleet), Counter[int]()
        for _ in range(40):
            state = one_round(method(per_round=2, rho=rho), state, fleet)
            drawn.update(busy.client // 4 for busy in fleet.ledger.busy)
        shares.append(drawn[2] / 80)
    assert shares[1] == 0.0
    assert shares[0] > 0.2


def test_tifl_spends_a_credit_a_round_and_keeps_to_one_tier() -> None:
    slow = [{"clients": [i], "compute": 1.0 + i} for i in range(12)]
    fleet = fleet_of(federation(), Devices(special=slow))
    state = empty_state(fleet)
    for number in range(1, 7):
        state = one_round(tifl(TRAIN, per_round=2, tiers=3, rounds=9), state, fleet)
        tiers = {busy.client // 4 for busy in fleet.ledger.busy}
        assert len(tiers) == 1
        assert sum(state.memory["tiers"]["credits"]) == 9 - number
    assert state.memory["tiers"]["tiers"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_oort_learns_utilities_and_explores_less_and_less() -> None:
    fleet = fleet_of(federation())
    found = states(oort(TRAIN, per_round=4, explore_least=0.0), fleet, 8)
    first, last = found[0].memory["oort"], found[-1].memory["oort"]
    assert len(first["clients"]) == 4
    assert len(last["clients"]) == 12
    assert last["exploration"] < first["exploration"] < 0.9
    assert all(utility > 0 for utility, _ in last["clients"].values())
    # |B| = 16 samples (one batch of 16) at a loss near ln 10 at the start.
    assert np.mean([u for u, _ in first["clients"].values()]) == pytest.approx(16 * math.log(10), rel=0.2)


def test_power_of_choice_takes_the_highest_losses_of_its_candidates_and_pays_for_asking() -> None:
    fleet = fleet_of(federation())
    run_rounds(power_of_choice(TRAIN, per_round=2, candidates=5), fleet, rounds=2)
    assert fleet.ledger.total["query.size"].messages == 24
    asked = fleet.ledger.total["evaluate.local"]
    assert asked.messages == 2 * 2 * 5
    assert asked.bytes_down == 2 * 5 * 4 * fleet.layout.size


# ------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"rho": 1.5}, "rho is 1.5; allowed: a number from 0 to 1"),
        ({"rho": -0.1}, "rho is -0.1"),
        ({"per_round": 0}, "per_round is 0"),
        ({"summary": "pixels"}, "summary is 'pixels'"),
        ({"summary": "features", "bins": 1}, "bins is 1"),
        ({"summary": "features", "low": 1.0}, "low is 1.0; allowed: below high, which is 1.0"),
        ({"summary": "features", "bound": 0.0}, "bound is 0.0"),
        ({"losses": "guessed"}, "losses is 'guessed'"),
        ({"draws": "none"}, "draws is 'none'"),
        ({"inside": "slowest"}, "inside is 'slowest'"),
        ({"speed": "slowest"}, "speed is 'slowest'"),
        ({"distance": "l1"}, "distance is 'l1'"),
        ({"watch": -1}, "watch is -1"),
        ({"recluster": 2.0}, "recluster is 2.0"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        method(**settings)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_more_devices_a_round_than_the_fleet_has_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"method.per_round is 60, but data.clients is 50"):
        resolve({"method": {"name": "haccs", "per_round": 60}, "data": {"clients": 50}})


def test_a_label_outside_the_agreed_space_and_a_client_without_data_are_named() -> None:
    with pytest.raises(UserError, match=r"client 4 has the label 2, outside the agreed label space 0 to 1"):
        states(method(label_space=2), fleet_of(federation()), 1)
    data = federation()
    nobody = replace(data.shares[3], train=data.shares[3].train.select(slice(0, 0)))
    data = replace(data, shares=(*data.shares[:3], nobody, *data.shares[4:]))
    with pytest.raises(UserError, match="client 3 has no training data"):
        states(method(), fleet_of(data), 1)


def test_gathering_only_the_samples_of_the_batches_changes_no_bit() -> None:
    part = federation().shares[0].train
    order = TRAIN.order(len(part), np.random.default_rng(3))
    few, places = only_used(part, order)
    assert len(few) == 16 < len(part)
    (whole, labels), (gathered, own) = part.tensors(), few.tensors()
    for before, after in zip(order, places, strict=True):
        assert torch.equal(whole[before], gathered[after])
        assert torch.equal(labels[before], own[after])


def test_every_option_keeps_the_contract() -> None:
    options = {
        "schedule": "published",
        "summary": "features",
        "epsilon": 50.0,
        "budget": 200.0,
        "losses": "published",
        "squared": True,
        "draws": "quasi",
        "inside": "sampled",
        "watch": 1,
        "algorithm": "hdbscan",
    }
    check_method("haccs", {**options, "per_round": 4})
    check_method("tifl", {"losses": "asked", "per_round": 4, "tiers": 2, "interval": 2})


@pytest.mark.slow
def test_a_first_round_with_100_000_clients_ends_and_finds_their_kinds() -> None:
    """Five clusters of clients, each with two labels of its own, six samples per client (some 20 CPU seconds, 1 GB)."""
    clients, each = 100_000, 8
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 5, clients)
    y = (2 * np.repeat(kind, each) + (np.arange(clients * each) % 4 == 0)).astype(np.int64)
    dataset = Dataset(
        name="many",
        x=torch.from_numpy(y)[:, None] + torch.rand(len(y), 4),
        y=torch.from_numpy(y),
        train=np.arange(len(y)),
        test=np.arange(100),
        classes=tuple("0123456789"),
    )
    places = np.arange(len(y)).reshape(clients, each)
    shares = tuple(
        ClientShare(train=Samples(dataset, at[:6]), test=Samples(dataset, at[6:]), cluster=int(k))
        for at, k in zip(places, kind, strict=True)
    )
    fleet = LocalFleet(Federation(dataset, shares, Samples(dataset, np.arange(100))), nn.Linear(4, 10))
    state = run_rounds(haccs(Train(lr=0.01), epsilon=None, per_round=10), fleet, rounds=1)
    assert len(state.worked) == 10
    found = np.array([state.groups[i] for i in range(clients)])
    assert all(len(set(kind[found == group])) == 1 for group in np.unique(found))
