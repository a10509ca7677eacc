"""One model or many: which clusters' classes lie alike, with numbers by hand and on fleets whose truth is known."""

import numpy as np
import pytest

from covey.parts.portraits.arrangement import cluster_portrait, joined_clusters, likeness, squares
from covey.parts.portraits.portrait import Portrait

CLASSES = np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]])  # their middle is 0


def portrait(means, counts=(4, 4, 4)):
    """Without noise: both halves are the class means."""
    return Portrait(counts=np.asarray(counts, float), halves=np.stack([np.asarray(means, float)] * 2))


def test_likeness_is_the_correlation_of_class_means_about_their_middle():
    other = np.array([[0.0, 3.0], [3.0, 0.0], [-3.0, -3.0]])  # the first two classes have traded places
    # <A, B> = 0 + 0 + 18 over <A, A> = 9 + 9 + 18; but a class lies where another one does, so it is taken for it
    assert likeness(portrait(CLASSES), portrait(other)) == -1.0
    far = other + 20.0  # the same arrangement far away: nothing is mistaken
    assert likeness(portrait(CLASSES), portrait(far)) == pytest.approx(18 / 36)


def test_a_shift_and_a_scale_of_all_classes_change_nothing():
    assert likeness(portrait(CLASSES), portrait(CLASSES + np.array([0.7, -0.2]))) == pytest.approx(1.0)
    assert likeness(portrait(CLASSES), portrait(0.2 * CLASSES + 0.5)) == pytest.approx(1.0)
    assert likeness(portrait(CLASSES), portrait(20.0 - CLASSES)) == pytest.approx(-1.0)  # the negative


def test_ill_from_another_threshold_on_is_a_contradiction():
    # one measurement, two classes; what is healthy at the one lies where the ill ones of the other do
    low, high = portrait([[0.0], [1.0]], (9, 9)), portrait([[1.0], [2.0]], (9, 9))
    assert likeness(low, high) == -1.0


def test_few_common_classes_or_noise_alone_tell_nothing():
    assert likeness(portrait(CLASSES, (4, 4, 0)), portrait(CLASSES, (0, 4, 4))) == np.inf
    rng = np.random.default_rng(0)
    noise = [Portrait(counts=np.full(5, 4.0), halves=rng.normal(size=(2, 5, 400))) for _ in range(2)]
    assert likeness(*noise) == np.inf


def test_distances_between_all_classes_by_hand():
    a = portrait([[0.0], [2.0]], (4, 4)).halves
    np.testing.assert_allclose(squares(a, a + 1.0), [[1, 9], [1, 1]])


def test_a_cluster_is_the_mean_of_its_members_by_samples_up_to_enough_of_them():
    # 2 and 16 samples count 2 and 8; one sample cannot be split into halves and counts nothing
    members = [portrait([[0.0]], (2,)), portrait([[1.0]], (16,)), portrait([[99.0]], (1,))]
    common = cluster_portrait(members, np.array([True, True, True]))
    assert common.counts.tolist() == [10.0]
    np.testing.assert_allclose(common.halves, 0.8)


def test_clusters_that_lie_alike_in_pairs_become_one():
    kinds = [CLASSES, CLASSES + 0.5, 30.0 - CLASSES]
    views = [[portrait(kinds[kind]) for kind in (0, 1, 2, 0, 1, 2)]]
    found = joined_clusters(views, np.array([0, 1, 2, 0, 1, 2]))
    assert found.labels.tolist() == [0, 0, 1, 0, 0, 1]
    assert found.likeness == pytest.approx(1.0)


def test_one_view_that_sees_a_difference_is_enough_to_stay_apart():
    alike = [portrait(CLASSES), portrait(CLASSES + 0.5)]
    different = [portrait(CLASSES), portrait(30.0 - CLASSES)]
    labels = np.array([0, 1])
    assert joined_clusters([alike], labels).labels.tolist() == [0, 0]
    assert joined_clusters([alike, different], labels).labels.tolist() == [0, 1]


def test_where_no_view_tells_anything_clusters_stay_as_they_are():
    nothing = [portrait(CLASSES, (4, 0, 0)), portrait(CLASSES + 1.0, (4, 0, 0))]
    assert joined_clusters([nothing], np.array([0, 1])).labels.tolist() == [0, 1]
