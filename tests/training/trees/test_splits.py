"""Derivatives, histograms, gains, leaf values and cuts, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from covey.errors import UserError
from covey.methods.boosting.cuts import POINTS, cuts_of, thinned
from covey.training.trees.splits import Growth, best_splits, derivatives, histogram

PLAIN = Growth(learning_rate=0.5, l2=1.0, min_child_weight=0.0)


def one_node(*bins: tuple[float, float]) -> np.ndarray:
    """The histogram of one node and one input."""
    return np.array(bins)[None, None, None]


def test_the_best_split_has_the_gain_worked_out_by_hand() -> None:
    # after bin 0: 4/3 + 9/3 - 1/5; after bin 1: 0/3 + 1/3 - 1/5, which is less
    found = best_splits(one_node((2.0, 2.0), (-2.0, 0.0), (-1.0, 2.0)), PLAIN)
    assert (found.feature[0, 0], found.bin[0, 0]) == (0, 0)
    assert found.gain[0, 0] == pytest.approx(4 / 3 + 9 / 3 - 1 / 5)
    assert found.left[0, 0].tolist() == [2.0, 2.0]
    assert found.right[0, 0].tolist() == [-3.0, 2.0]


def test_a_leaf_is_worth_minus_g_over_h_plus_l2_times_the_learning_rate() -> None:
    assert PLAIN.value(np.array([2.0, 3.0])) == pytest.approx(-0.5 * 2 / 4)


def test_a_side_that_is_too_light_is_no_split() -> None:
    sums = one_node((2.0, 0.5), (-2.0, 3.0))
    assert best_splits(sums, Growth(min_child_weight=0.4)).split[0, 0]
    assert not best_splits(sums, Growth(min_child_weight=0.6)).split[0, 0]


def test_gamma_is_the_least_gain() -> None:
    sums = one_node((2.0, 1.0), (-2.0, 1.0))  # 4/2 + 4/2 - 0
    assert best_splits(sums, replace(PLAIN, gamma=3.9)).split[0, 0]
    assert not best_splits(sums, replace(PLAIN, gamma=4.1)).split[0, 0]


def test_noise_that_makes_a_weight_negative_makes_no_value_infinite() -> None:
    assert Growth(l2=0.0).value(np.array([1.0, -2.0])) == 0.0
    assert Growth(l2=1.0).score(np.array([3.0, -2.0])) == 9.0


def test_two_classes_have_the_derivatives_of_the_logistic_loss() -> None:
    g, h = derivatives(np.array([[0.0], [math.log(3)]], np.float32), np.array([1, 0]), "cross-entropy")
    assert g[:, 0] == pytest.approx([-0.5, 0.75])
    assert h[:, 0] == pytest.approx([0.25, 0.1875])


def test_more_classes_have_those_of_the_softmax() -> None:
    margin = np.log(np.array([[1.0, 1.0, 2.0]], np.float32))
    g, h = derivatives(margin, np.array([2]), "cross-entropy")
    assert g[0] == pytest.approx([0.25, 0.25, -0.5])
    assert h[0] == pytest.approx([0.375, 0.375, 0.5])


def test_squares_have_the_residual_and_one() -> None:
    g, h = derivatives(np.array([[1.0], [4.0]], np.float32), np.array([[3.0], [3.5]], np.float32), "mse")
    assert g[:, 0].tolist() == [-2.0, 0.5]
    assert h[:, 0].tolist() == [1.0, 1.0]


def test_another_objective_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="classification or regression"):
        derivatives(np.zeros((1, 1), np.float32), np.zeros(1), "")


def test_histograms_add_up_by_node_input_and_bin() -> None:
    codes = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
    node = np.array([[0], [0], [1]])
    g, h = np.array([[1.0], [2.0], [4.0]], np.float32), np.full((3, 1), 0.5, np.float32)
    found = histogram(codes, node, (g, h), (2, 2))
    assert found[0, 0, :, :, 0].tolist() == [[1.0, 2.0], [0.0, 3.0]]
    assert found[0, 1, :, :, 0].tolist() == [[4.0, 0.0], [4.0, 0.0]]
    assert found[0, 0, :, :, 1].tolist() == [[0.5, 0.5], [0.0, 1.0]]


def told(*points: tuple[float, float]) -> np.ndarray:
    """What a client says of one input."""
    return np.array([points], np.float32)


def test_few_values_are_a_bin_each() -> None:
    cuts = cuts_of([told((1, 5), (2, 1)), told((2, 3), (7, 1))], bins=5)
    assert cuts.tolist() == [[2.0, 7.0, 7.0, 7.0]]


def test_many_values_are_cut_at_quantiles_of_all_clients() -> None:
    # 1 to 8 with weight 1 each: a quarter of the weight lies below 3, half below 5, three quarters below 7
    cuts = cuts_of([told(*((v, 1) for v in (1, 3, 5, 7))), told(*((v, 1) for v in (2, 4, 6, 8)))], bins=4)
    assert cuts.tolist() == [[3.0, 5.0, 7.0]]


def test_a_client_with_many_values_tells_evenly_spaced_ones_that_stand_for_all() -> None:
    values, counts = thinned(np.arange(1000, dtype=np.float32), np.ones(1000, np.int64))
    assert len(values) <= POINTS
    assert counts.sum() == 1000
    assert counts.max() <= 4
