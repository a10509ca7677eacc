"""ClassDistances class by class, and the cut into clusters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.parts.portraits.clusters import (
    ClassDistances,
    between_classes,
    class_distances,
    clusters,
    cut_into,
    numbered_by_size,
    on_a_map,
    pair_weights,
    renamed,
    settled,
    tree,
)
from covey.parts.portraits.portrait import Portrait


def exact(means, counts):
    """A portrait without noise: both halves are the class means."""
    means = np.asarray(means, float)
    return Portrait(counts=np.asarray(counts, float), halves=np.stack([means, means]))


def test_the_distance_is_over_classes_that_both_hold_in_units_of_the_distance_between_classes():
    # classes at 0 and 2 on a line: 4 apart when squared
    a = exact([[0.0], [2.0], [9.0]], [4, 4, 0])
    b = exact([[1.0], [2.0], [7.0]], [4, 4, 8])
    found = class_distances([a, b])
    # class 0 differs by 1, class 1 by 0, class 2 is not held by a; weights 4*4/8 = 2 each: (2*1 + 2*0) / 4 = 0.5
    # between classes: a: 4 (weight 2, twice), b: (1, weight 2), (36, 8*4/12), (25, 8*4/12), each twice
    unit = (2 * 4 + 2 * 1 + 8 / 3 * 36 + 8 / 3 * 25) / (2 + 2 + 2 * 8 / 3)
    np.testing.assert_allclose(found.distance, [[0, 0.5 / unit], [0.5 / unit, 0]])
    np.testing.assert_allclose(found.weight, [[0, 4], [4, 0]])


def test_clients_without_a_common_class_have_no_distance_and_no_weight():
    found = class_distances([exact([[0.0], [1.0]], [5, 0]), exact([[0.0], [1.0]], [0, 5])])
    assert found.weight.sum() == 0
    assert found.distance.sum() == 0


def test_weights_are_inverse_variances_of_a_difference():
    np.testing.assert_allclose(pair_weights(np.array([2.0, 6.0, 0.0])), [[1, 1.5, 0], [1.5, 3, 0], [0, 0, 0]])


def test_one_class_alone_gives_the_unit_one():
    halves = np.zeros((2, 2, 1, 3))
    assert between_classes(halves, np.array([[4.0], [4.0]])) == 1.0


def noisy(kinds, rng, counts=None, spread=0.0, d=40):
    """Portraits of clients of some kinds: each cluster has its own class means; the two halves have their own noise."""
    means = rng.normal(size=(max(kinds) + 1, 5, d))
    made = []
    for place, kind in enumerate(kinds):
        own = means[kind] + spread * rng.normal(size=(5, d))
        held = np.full(5, 6.0) if counts is None else counts[place]
        made.append(
            Portrait(counts=held, halves=np.stack([own + 0.5 * rng.normal(size=(5, d)) for _ in range(2)]))
        )
    return made


def test_kinds_are_found_and_their_number_too():
    kinds = [0, 1, 2] * 6
    cut = clusters(class_distances(noisy(kinds, np.random.default_rng(0))))
    assert cut.count == 3
    assert cut.labels.tolist() == kinds
    assert cut.apart > 0.5
    assert cut.inside < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_homogeneous_clients_are_one_cluster_whatever_their_label_mixes(seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(12, rng.dirichlet(np.full(5, 0.3)), size=20).astype(float)
    assert clusters(class_distances(noisy([0] * 20, rng, counts))).count == 1


def test_clients_that_are_each_unlike_all_others_are_one_cluster():
    """As natural writers are: there is no kind that several of them share."""
    assert clusters(class_distances(noisy([0] * 20, np.random.default_rng(1), spread=1.0))).count == 1


def compared(distance, weight):
    """Distances of clients that all hold the same two classes."""
    seen = np.ones((len(distance), 2))
    return ClassDistances(distance=distance, weight=weight, seen=seen, held=seen > 0)


def of_classes(held, seed, classes=6):
    """A client that holds 8 samples of some classes, each near its own place, with noise of its own in each half."""
    rng = np.random.default_rng(seed)
    means = 3.0 * np.eye(classes)
    halves = np.stack([means + 0.1 * rng.normal(size=means.shape) for _ in range(2)])
    counts = np.array([8.0 if label in held else 0.0 for label in range(classes)])
    return Portrait(counts=counts, halves=halves)


def test_clients_without_a_common_class_are_not_taken_for_alike():
    portraits = [of_classes((0, 1, 2) if i % 2 else (3, 4, 5), i) for i in range(8)]
    cut = clusters(class_distances(portraits))
    assert cut.labels.tolist() == [0, 1] * 4
    assert np.isinf(cut.apart)  # nothing is known of their distance
    assert cut.unknown == pytest.approx(16 * 2 / 56)


def test_a_class_that_two_sets_hold_is_common_even_where_it_is_too_little_to_be_compared():
    portraits = [of_classes((0, 1, 2) if i % 2 else (3, 4, 5), i) for i in range(8)]
    for one in portraits[:2]:
        one.counts[0] = 1.0  # a single sample, or a single recording
    cut = clusters(class_distances(portraits))
    assert cut.count == 1
    assert cut.unknown > 0


def test_kinds_inside_of_a_set_of_classes_are_found_too():
    portraits = [of_classes((0, 1, 2) if i % 2 else (3, 4, 5), i) for i in range(12)]
    moved = [
        Portrait(counts=one.counts, halves=one.halves[:, :, ::-1]) if i % 4 == 1 else one
        for i, one in enumerate(portraits)
    ]
    assert clusters(class_distances(moved)).labels.tolist() == [0, 1, 0, 2] * 3


@pytest.mark.parametrize(
    "held",
    [
        [(0,), (0,), (1,), (1,)],  # one class each: nothing to tell apart
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)],  # linked over others
        [(0, 1), (0, 1), (0, 1), (3, 4)],  # alone with its classes
    ],
)
def test_sets_of_classes_that_are_no_reason_to_part(held):
    assert clusters(class_distances([of_classes(one, i) for i, one in enumerate(held)])).count == 1


def test_average_linkage_merges_the_nearest_clusters_first():
    distance = np.array([[0, 1, 8, 9], [1, 0, 7, 9], [8, 7, 0, 2], [9, 9, 2, 0]], float)
    found = compared(distance, 1 - np.eye(4))
    assert tree(found) == [(0, 1), (2, 3), (0, 2)]
    assert cut_into(tree(found), 4, 2).tolist() == [0, 0, 1, 1]


def every_pair_again(found: ClassDistances) -> list[tuple[int, int]]:
    """Average linkage as it is defined: all pairs of clusters are compared for every merge."""
    count = len(found.distance)
    clusters = {i: [i] for i in range(count)}
    merges = []
    while len(clusters) > 1:
        far = {}
        for a in clusters:
            for b in clusters:
                weight = found.weight[np.ix_(clusters[a], clusters[b])]
                total = (weight * found.distance[np.ix_(clusters[a], clusters[b])]).sum()
                if a < b and weight.sum() > 0:
                    far[a, b] = total / weight.sum()
        a, b = min(far, key=lambda pair: (far[pair], pair)) if far else sorted(clusters)[:2]
        clusters[a] += clusters.pop(b)
        merges.append((a, b))
    return merges


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10_000))
def test_the_tree_is_average_linkage_also_with_ties_and_clients_that_share_nothing(clients, seed):
    rng = np.random.default_rng(seed)
    distance = np.triu(rng.integers(0, 8, (clients, clients)), 1).astype(float)  # whole numbers: many ties
    weight = np.triu(rng.choice([0.0, 1.0, 2.0], (clients, clients)), 1)
    found = compared(distance + distance.T, weight + weight.T)
    assert tree(found) == every_pair_again(found)


def test_who_was_joined_too_early_moves_to_the_nearer_cluster():
    distance = np.array([[0, 0, 5, 5], [0, 0, 5, 5], [5, 5, 0, 0], [5, 5, 0, 0]], float)
    found = compared(distance, 1 - np.eye(4))
    assert settled(found, np.array([0, 0, 0, 1])).tolist() == [0, 0, 1, 1]


def test_small_clusters_join_the_nearest():
    kinds = [0] * 5 + [1] * 5 + [2]
    cut = clusters(class_distances(noisy(kinds, np.random.default_rng(2))), min_size=2)
    assert cut.count == 2
    assert cut.labels[:10].tolist() == kinds[:10]


def test_clusters_keep_the_number_that_most_of_their_members_had():
    before = {1: 4, 2: 4, 3: 7, 4: 7}
    # one cluster of two old members and an unseen client; one that was cut off the other; 8 is the next free number
    assert renamed(np.array([0, 0, 1, 2, 0]), (1, 2, 3, 4, 5), before, 8) == {1: 4, 2: 4, 5: 4, 3: 7, 4: 8}


def test_numbers_follow_first_appearance():
    assert numbered_by_size(np.array([5, 5, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]


def test_the_map_keeps_the_distances_of_points_on_a_line():
    points = np.array([0.0, 1.0, 3.0])
    found = compared((points[:, None] - points[None]) ** 2, 1 - np.eye(3))
    places = on_a_map(found)
    np.testing.assert_allclose(np.linalg.norm(places[0] - places[2]), 3.0)
    np.testing.assert_allclose(np.linalg.norm(places[1] - places[2]), 2.0)
