"""Unseen clients, drift and new groups, on vectors whose place one can see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.parts.group.centroids import (
    alike,
    centroids,
    distances,
    drifted_groups,
    founded,
    joined,
    radius,
    settled,
)

CENTRES = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])


def place(group: int, seed: int = 0) -> np.ndarray:
    return CENTRES[group] + np.random.default_rng(seed).normal(size=2)


def membership(each: int = 10):  # type: ignore[no-untyped-def]
    labels = np.repeat([0, 1], each)
    vectors = np.stack([place(g, i) for i, g in enumerate(labels)])
    return founded(tuple(range(2 * each)), vectors, labels)


def test_centroids_are_the_means_of_the_members() -> None:
    made = founded((7, 8, 9), np.array([[0, 1], [1, 1], [1, 0]], np.uint8), np.array([0, 0, 1]))
    assert centroids(made).tolist() == [[0.5, 1.0], [1.0, 0.0]]
    assert made.groups == {7: 0, 8: 0, 9: 1}


def test_the_radius_holds_the_members_and_not_the_neighbours() -> None:
    # Standard normal in 2 dimensions: distance 1.25 on average, deviation 0.66.
    assert radius(membership(500)) == pytest.approx(1.253 + 3 * 0.655, rel=0.05)
    assert radius(founded((0,), np.zeros((1, 2)), np.array([0]))) == np.inf


def test_an_unseen_client_goes_to_the_nearest_centroid_and_pulls_it() -> None:
    before = membership()
    after = joined(before, {99: place(1, 77)})
    assert after.groups[99] == 1
    assert after.groups.items() >= before.groups.items()
    assert not np.array_equal(centroids(after)[1], centroids(before)[1])
    assert np.array_equal(centroids(after)[0], centroids(before)[0])
    assert joined(before, {}) is before


def test_whoever_still_fits_stays() -> None:
    before = membership()
    after = drifted_groups(before, {3: place(0, 500), 15: place(1, 501)})
    assert after.groups == before.groups


def test_a_drifted_client_migrates_and_the_centroids_follow() -> None:
    before = membership()
    after = drifted_groups(before, {3: place(1, 500)})
    assert after.groups == before.groups | {3: 1}
    members = [i for i, g in after.groups.items() if g == 1]
    assert centroids(after)[1] == pytest.approx(after.vectors[members].mean(axis=0))


def test_clients_that_fit_nowhere_but_each_other_found_a_group() -> None:
    after = drifted_groups(membership(), {i: place(2, 500 + i) for i in (1, 2, 3)}, min_size=3)
    assert {after.groups[i] for i in (1, 2, 3)} == {2}
    assert after.parents == (0, 1, 0)  # the nearer of the two
    again = drifted_groups(after, {4: place(2, 600)})
    assert again.groups[4] == 2


def test_a_lonely_stranger_goes_to_the_nearest_group() -> None:
    after = drifted_groups(membership(), {1: place(2, 500)})
    assert after.groups == membership().groups
    assert len(after.parents) == 2


def test_two_clusters_of_strangers_found_two_groups() -> None:
    far = np.array([300.0, 300.0])
    latest = {i: place(2, 500 + i) for i in (1, 2)} | {i: far + place(0, 500 + i) for i in (3, 4)}
    after = drifted_groups(membership(), latest)
    assert after.groups[1] == after.groups[2] != after.groups[3] == after.groups[4]
    assert len(after.parents) == 4


def test_a_group_that_everybody_left_attracts_nobody() -> None:
    after = drifted_groups(membership(2), {i: place(1, 500 + i) for i in (0, 1)})
    assert set(after.groups.values()) == {1}
    assert joined(after, {9: place(0, 9)}).groups[9] == 1


@given(st.permutations(range(12)))
def test_the_order_of_the_latest_vectors_does_not_matter(order: list[int]) -> None:
    latest = {i: place(2 if i % 3 == 0 else 1, 500 + i) for i in range(12)}
    straight = drifted_groups(membership(), latest).groups
    assert drifted_groups(membership(), {i: latest[i] for i in order}).groups == straight


def test_distances_are_euclidean_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, means = rng.normal(size=(50, 7)), rng.normal(size=(3, 7))
    means[1] = np.inf  # a group that everybody left
    expected = np.linalg.norm(vectors[:, None] - means[[0, 2]], axis=2)
    for block in (20_000, 8):
        monkeypatch.setattr("covey.parts.group.centroids.BLOCK", block)
        found = distances(vectors, means)
        np.testing.assert_allclose(found[:, [0, 2]], expected, rtol=1e-9)
        assert np.isinf(found[:, 1]).all()


def test_settling_moves_whoever_is_nearer_to_another_mean_and_drops_empty_groups() -> None:
    vectors = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [9.0]])
    assert settled(vectors, np.array([0, 0, 0, 1, 1, 0])).tolist() == [0, 0, 0, 1, 1, 1]
    twins = np.array([[0.0], [2.0], [1.0], [1.0], [50.0]])
    assert set(settled(twins, np.array([0, 0, 1, 1, 2])).tolist()) == {0, 1}


def test_alike_keeps_bands_apart() -> None:
    vectors = np.array([[0.0, 0.0], [1.0, 0.0], [50.0, 0.0]])
    assert [band.tolist() for band in alike(vectors, 5.0)] in ([[0, 1], [2]], [[2], [0, 1]])
    assert [band.tolist() for band in alike(vectors[:1], 5.0)] == [[0]]
