"""Large fleets: clusters of a sample, and everybody else by the nearest of them."""

import numpy as np
import pytest

from covey.core.ledger import Cost, Ledger
from covey.core.round import empty_state, one_round, open_round
from covey.methods.covey import covey, grouping, label_groups, many
from covey.methods.covey.grouping import PORTRAITS
from covey.methods.covey.many import NEAREST, OUTSTANDING, Nearest, blocks, means_of
from covey.parts.portraits.portrait import DescribeClasses, Portrait, portraits_of
from covey.parts.selection import fair
from covey.parts.selection.plain import drawn_clients
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve
from covey.testing import check_method, small_fleet

ROTATED = {
    "data": {"name": "digits", "clients": 24},
    "partition": {"name": "dir-class", "alpha": 10.0, "minimum": 10},
    "shift": {"name": "rotation"},
    "seed": 3,
}


@pytest.fixture
def few(monkeypatch):
    """As if a dozen clients were many."""
    monkeypatch.setattr(grouping, "COMPARED", 12)
    monkeypatch.setattr(many, "BLOCK", 5)


def rotated():
    return fleet_of(resolve({**ROTATED, "rounds": 1, "method": {"name": "covey"}}))


def partition_of(groups):
    return {frozenset(i for i in groups if groups[i] == group) for group in set(groups.values())}


def test_everybody_is_in_the_cluster_that_comparing_all_pairs_finds(few, monkeypatch):
    fleet = rotated()
    method = covey(Train(lr=0.1))
    sampled = one_round(method, empty_state(fleet), fleet)
    assert len(PORTRAITS.of(sampled.memory)) == 12, "only the sample's portraits are kept"
    monkeypatch.setattr(grouping, "COMPARED", 2000)
    fleet = rotated()
    exact = one_round(method, empty_state(fleet), fleet)
    assert partition_of(sampled.groups) == partition_of(exact.groups)
    assert len(partition_of(exact.groups)) == 4
    assert "12 of the 24 clients were compared" in sampled.notes["clusters"]["text"]


def test_label_groups_are_those_of_the_portraits(few, monkeypatch):
    fleet = rotated()
    now = open_round(empty_state(fleet), fleet)
    now.groups = covey(Train(lr=0.1)).group(now)
    by_sample, outstanding = label_groups(now), OUTSTANDING.of(now.memory)
    assert len(outstanding) == 12
    monkeypatch.setattr(grouping, "COMPARED", 2000)
    fleet = rotated()
    whole = open_round(empty_state(fleet), fleet)
    whole.groups = covey(Train(lr=0.1)).group(whole)
    assert partition_of(by_sample) == partition_of(label_groups(whole))
    some = range(0, 24, 3)
    assert partition_of(label_groups(now, some)) == partition_of({i: by_sample[i] for i in some})


def test_the_contract_holds_in_a_large_fleet(monkeypatch):
    monkeypatch.setattr(grouping, "COMPARED", 4)
    monkeypatch.setattr(many, "BLOCK", 2)
    monkeypatch.setattr(fair, "POOL", 5)
    check_method(covey(Train(lr=0.1), per_round=3, every=2))


def test_a_client_whose_data_changed_is_placed_anew(few):
    """Round 2 asks the sample again and, in turn, others: everybody is asked within a few rounds."""
    drift = {"devices": {"drifts": [{"round": 2, "clients": list(range(24)), "rotations": 1}]}}
    fleet = fleet_of(resolve({**ROTATED, **drift, "rounds": 4, "method": {"name": "covey", "every": 2}}))
    method = covey(Train(lr=0.1), every=2)
    state = one_round(method, empty_state(fleet), fleet)
    before = NEAREST.of(state.memory)["halves"]
    state = one_round(method, state, fleet)
    assert not np.array_equal(before, NEAREST.of(state.memory)["halves"]), "clusters are found anew"
    assert partition_of(state.groups) == {
        frozenset(i for i, share in enumerate(fleet.data.shares) if share.cluster == kind)
        for kind in range(4)
    }


def test_means_are_those_of_a_single_portrait():
    for picture in ({}, {"data": {"name": "breast-cancer"}}):
        fleet = small_fleet() if not picture else fleet_of(resolve({**picture, "rounds": 1}))
        now = open_round(empty_state(fleet), fleet)
        replies = now.ask(DescribeClasses(flip=0.2), list(now.here)[:3])
        for view in range(len(replies[0].stats["views"]) // 2):
            views = [tuple(pair) for pair in np.reshape(replies[0].stats["views"], (-1, 2)).tolist()]
            classes = len(replies[0].stats["counts"])
            found = means_of(np.stack([r.stats["bits"] for r in replies]), views, view, classes, 0.2)
            for reply, halves in zip(replies, found, strict=True):
                alone = portraits_of(reply.stats, 0.2)[view].halves
                np.testing.assert_allclose(halves, alone, rtol=1e-5, atol=1e-6)


def test_the_nearest_cluster_by_hand():
    """One number, two classes; clusters at (0, 0) and (4, 1), the second without class 1.

    Client 0 has (3, 9): of cluster 0 it is 9 and 81 away, 45 on average; of cluster 1, 1: the second is nearer.
    Client 1 has one sample of class 0, too few to compare, and 0 in class 1: cluster 0. Client 2 shares no class.
    """
    clusters = [
        Portrait(counts=np.array([9.0, 9.0]), halves=np.zeros((2, 2, 1))),
        Portrait(counts=np.array([9.0, 0.0]), halves=np.array([[[4.0], [1.0]]] * 2)),
    ]
    nearest = Nearest.of(0, clusters, [7, 5], [10, 20])
    halves = np.array([[[[3.0], [9.0]]] * 2, [[[4.0], [0.0]]] * 2, [[[4.0], [1.0]]] * 2], np.float32)
    counts = np.array([[2, 2], [1, 3], [0, 0]], np.float32)
    assert nearest.nearest(counts, halves).tolist() == [5, 7, 5], "the largest where nothing is known"


def test_a_sample_is_drawn_once_each_and_blocks_are_everybody(monkeypatch):
    found = drawn_clients(range(10), 4, np.random.default_rng(0))
    assert len(set(found)) == 4
    assert found == sorted(found)
    assert drawn_clients([3, 1], 4, np.random.default_rng(0)) == [3, 1]
    monkeypatch.setattr(many, "BLOCK", 4)
    assert list(blocks(range(9))) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_what_is_asked_at_once_takes_as_long_as_the_longest():
    ledger = Ledger()
    with ledger.at_once():
        for seconds in (2.0, 5.0, 3.0):
            ledger.charge("query.x", Cost(messages=1, seconds=seconds))
    ledger.charge("query.x", Cost(messages=1, seconds=1.0))
    assert (ledger.clock, ledger.cost.messages, ledger.cost.seconds) == (6.0, 4, 6.0)


def test_a_round_is_chosen_among_some_of_a_large_fleet(monkeypatch):
    monkeypatch.setattr(fair, "POOL", 6)
    fleet = rotated()
    method = covey(Train(lr=0.1), per_round=4)
    state = one_round(method, empty_state(fleet), fleet)
    first = fair.pool(open_round(state, fleet))
    assert len(first) == 6
    assert first == sorted(set(first))
    assert fair.pool(open_round(one_round(method, state, fleet), fleet)) != first, "others in each round"
    assert "chosen among 6 of them" in state.notes["who was chosen"]["text"]
