"""The method that is all five: what it decides on fleets whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.covey import covey, cut_by_label
from covey.methods.covey.grouping import with_parents
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve

SKEWED = {"partition": {"name": "dir-class", "alpha": 0.3, "minimum": 10}}
ROTATED = {"partition": {"name": "dir-class", "alpha": 10.0, "minimum": 10}, "shift": {"name": "rotation"}}


def after(rounds, tables, **settings):
    """State, true clusters and measurements of a small fleet on the digits."""
    config = resolve(
        {
            "seed": 100,
            "data": {"clients": 16},
            "method": {"name": "covey", "per_round": 8, **settings},
            "engine": {"mode": "serial", "lanes": False},
            **tables,
        }
    )
    fleet = fleet_of(config)
    found = []
    measure = Measuring(every=100, global_test=False, fine_tune=True)
    try:
        state = run_rounds(config.method, fleet, rounds=rounds, measure=measure, watchers=[found.append])
        return state, [share.cluster for share in fleet.data.shares], found[-1]
    finally:
        fleet.close()


def test_label_skew_alone_makes_one_cluster():
    state, _, _ = after(1, SKEWED)
    assert set(state.groups.values()) == {0}
    assert "one cluster" in state.notes["clusters"]["text"]


def test_rotated_pictures_make_a_cluster_for_every_turn():
    state, kinds, _ = after(1, ROTATED)
    assert adjusted_rand_score(kinds, [state.groups[i] for i in range(16)]) == 1.0
    assert "4 clusters of 4, 4, 4, 4 clients" in state.notes["clusters"]["text"]


def test_it_is_better_than_one_model_where_clusters_contradict_each_other():
    permuted = {**ROTATED, "shift": {"name": "label", "offsets": [0, 5]}}
    _, _, whole = after(6, permuted)
    _, _, without = after(6, permuted, without=["clusters", "serving"])
    name = ("local-test", "accuracy-mean")
    assert whole.value(*name) > without.value(*name) + 0.2


def test_an_unseen_client_of_a_known_cluster_joins_its_cluster_at_once_and_nobody_else_moves():
    joins = {"devices": {"joins": [{"clients": [14, 15], "round": 3}]}}
    before, _, _ = after(2, {**ROTATED, **joins})
    state, kinds, _ = after(3, {**ROTATED, **joins})
    assert 15 not in before.groups
    assert {i: g for i, g in state.groups.items() if i < 14} == dict(before.groups)
    assert adjusted_rand_score(kinds, [state.groups[i] for i in range(16)]) == 1.0


def test_clients_that_drift_are_found_and_a_new_cluster_starts_from_the_model_they_had():
    drifts = {"devices": {"drifts": [{"clients": [0, 2, 4, 6], "round": 4, "rotations": 2}]}}
    half = {**ROTATED, "shift": {"name": "rotation", "rotations": [0, 1]}}
    state, _, _ = after(5, {**half, **drifts}, every=5)
    moved = {state.groups[i] for i in (0, 2, 4, 6)}
    stayed = {state.groups[i] for i in (8, 10, 12, 14)}
    assert len(moved) == len(stayed) == 1
    assert moved != stayed
    assert len(state.models) == 3


def test_a_new_cluster_comes_from_where_most_of_its_members_were():
    before = {1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
    groups = {1: 0, 2: 2, 3: 2, 4: 2, 5: 1, 6: 3}
    assert with_parents([0, 1], groups, before) == [0, 1, 1, 3]


def test_every_pair_of_cluster_and_label_is_a_group_of_its_own():
    assert cut_by_label({1: 0, 2: 0, 3: 1}, {1: 4, 2: 9, 3: 4}) == {1: 4, 2: 9, 3: 14}


def test_without_a_server_models_travel_between_peers_only():
    state, kinds, end = after(4, ROTATED, over="hierarchical-wheel")
    assert adjusted_rand_score(kinds, [state.groups[i] for i in range(16)]) == 1.0
    assert len(state.models) == 16
    cost = end.fleet.ledger.total
    row = 4 * state.models.shape[1]
    assert cost["mix.peers"].messages == sum(edge["load"] for edge in state.notes["graph"]["edges"])
    assert cost["mix.peers"].bytes_peer == cost["mix.peers"].messages * row
    assert cost["train.judged"].bytes_down < row  # no server sends a model
    assert end.value("local-test", "accuracy-mean") > 0.5


@pytest.mark.parametrize(("number", "rate"), [(1, 0.1), (2, 0.095), (5, 0.1 * 0.95**4), (20, 0.05)])
def test_the_learning_rate_falls_from_twice_what_is_set_to_it(number, rate):
    assert covey(Train(lr=0.05)).local.train.recipe(number).lr == pytest.approx(rate)
    for left in (covey(Train(lr=0.05), without=("rate",)), covey(Train(lr=0.05, lr_decay=1 - 1e-12))):
        assert left.local.train.recipe(number).lr == pytest.approx(0.05)


def test_parts_can_be_left_out_and_others_are_refused():
    method = covey(Train(), without=("serving", "correction", "selection"))
    assert (method.adapt, method.serve, method.update, method.after) == (None, None, None, ())
    with pytest.raises(UserError, match="allowed: a list of clusters, selection, correction, serving"):
        covey(Train(), without=("luck",))


def test_the_same_fine_tuning_is_measured_for_every_method():
    """Plain training from the served row on the client's data, whatever the method's own way of serving is."""
    _, _, end = after(2, SKEWED)
    config = {"method": {"name": "fedavg", "per_round": 8}}
    assert end.value("tuned-test", "accuracy-mean") > 0.5
    resolved = resolve(
        {**SKEWED, **config, "data": {"clients": 16}, "engine": {"mode": "serial", "lanes": False}}
    )
    fleet = fleet_of(resolved)
    method = resolved.method
    state = run_rounds(method, fleet, rounds=1)
    tuned = Measuring(global_test=False, fine_tune=True)(method, state, fleet, True)
    plain = Measuring(global_test=False)(replace(method, adapt=method.local), state, fleet, True)
    a = [m.value for m in tuned if m.split == "tuned-test" and m.metric == "accuracy-mean"]
    b = [m.value for m in plain if m.split == "local-test" and m.metric == "accuracy-mean"]
    assert len(a) == len(b) > 0
    np.testing.assert_allclose(a[-1], b[-1], atol=0.05)  # another call, so another order of the batches
    assert torch.isfinite(state.models).all()
    fleet.close()


def test_pictures_that_differ_in_brightness_alone_are_two_clusters_and_one_cluster():
    brighter = {**ROTATED, "shift": {"name": "clustered", "clusters": 2, "images": ["brightness"]}}
    state, _, _ = after(1, brighter)
    assert set(state.groups.values()) == {0}
    assert "look different, in 2 ways, but their classes lie alike" in state.notes["clusters"]["text"]


def test_who_works_and_why_is_told_in_words():
    state, _, _ = after(2, ROTATED)
    said = state.notes["who was chosen"]["text"]
    assert said.startswith("Round 2: 8 of 16 clients work, from 4 of 4 clusters and ")
    assert "The longest wait is" in said
