"""Who works: HACCS, TiFL, Oort and power-of-choice on examples worked out by hand."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import UserError
from covey.methods.oort import (
    Oort,
    first_epoch,
    next_exploration,
    paced,
    pick,
    preferred_duration,
    scores,
    speed_factor,
    top,
    utility,
)
from covey.methods.power_of_choice import candidates, highest
from covey.methods.tifl import (
    credits_each,
    draw_tier,
    make_tiers,
    nearest_tier,
    stalled,
    tier_probabilities,
)
from covey.parts.selection.haccs import cluster_least, cluster_means, cluster_weights, draw
from covey.parts.steps import Train

# Three clusters A, B, C of seven devices, seconds and losses.
CLUSTERS = [[0, 1], [2, 3, 4], [5, 6]]
LATENCY = np.array([1.0, 3.0, 3.0, 5.0, 4.0, 7.0, 9.0])
LOSS = np.array([0.6, 0.9, 1.2, 1.5, 0.9, 0.3, 0.3])


def weights(rho: float) -> np.ndarray:
    return cluster_weights(cluster_means(LATENCY, CLUSTERS), cluster_means(LOSS, CLUSTERS), rho=rho)


def within(count: int, trials: int, share: float) -> bool:
    """The two-sided 99.9 % binomial interval (normal approximation)."""
    return abs(count - trials * share) <= 3.29 * math.sqrt(trials * share * (1 - share))


def test_cluster_weights_to_four_digits() -> None:
    # Mean latencies 2, 4, 8: tau = 3/4, 1/2, 0. Mean losses 0.75, 1.2, 0.3: shares 1/3, 8/15, 2/15.
    # theta = 0.3 tau + 0.7 share.
    assert [f"{w:.4f}" for w in weights(0.3)] == ["0.4583", "0.5233", "0.0933"]
    assert [f"{w:.4f}" for w in weights(1.0)] == ["0.7500", "0.5000", "0.0000"]
    assert [f"{w:.4f}" for w in weights(0.0)] == ["0.3333", "0.5333", "0.1333"]


def test_a_cluster_can_be_as_fast_as_its_fastest_device() -> None:
    # Least latencies 1, 3, 7: tau = 6/7, 4/7, 0; the same shares of loss, theta = 0.3 tau + 0.7 share.
    theta = cluster_weights(cluster_least(LATENCY, CLUSTERS), cluster_means(LOSS, CLUSTERS), rho=0.3)
    assert [f"{w:.4f}" for w in theta] == ["0.4905", "0.5448", "0.0933"]


def test_draws_follow_the_weights_over_10000_trials() -> None:
    theta = weights(0.3)
    rng = np.random.default_rng(1)
    first = Counter(draw(CLUSTERS, theta, LATENCY, 1, rng)[0] for _ in range(10_000))
    # The first device is the fastest of its cluster: 0, 2 or 5, with theta / 1.075.
    assert set(first) == {0, 2, 5}
    for device, share in ((0, 0.4583 / 1.075), (2, 0.5233 / 1.075), (5, 0.0933 / 1.075)):
        assert within(first[device], 10_000, share)


def test_two_draws_with_replacement_take_the_two_fastest_of_a_cluster() -> None:
    theta = weights(0.3)
    rng = np.random.default_rng(2)
    pairs = Counter(tuple(draw(CLUSTERS, theta, LATENCY, 2, rng)) for _ in range(10_000))
    a, b, c = (theta / theta.sum()).tolist()
    for pair, share in (((0, 1), a * a), ((2, 4), b * b), ((5, 6), c * c), ((0, 2), a * b), ((2, 5), b * c)):
        assert within(pairs[pair], 10_000, share)


def test_an_emptied_cluster_has_weight_0_and_all_devices_are_used_once() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        assert sorted(draw(CLUSTERS, weights(0.3), LATENCY, 7, rng)) == list(range(7))
    assert len(draw(CLUSTERS, weights(0.3), LATENCY, 99, rng)) == 7


def test_when_only_weights_of_0_are_left_clusters_are_equally_likely() -> None:
    # rho = 1: the slowest cluster has theta 0, and is drawn only when the others are empty.
    rng = np.random.default_rng(4)
    for _ in range(100):
        chosen = draw(CLUSTERS, weights(1.0), LATENCY, 6, rng)
        assert set(chosen[:5]) == {0, 1, 2, 3, 4}
        assert chosen[5] == 5


def test_a_dropped_device_is_replaced_by_the_next_fastest_of_its_cluster() -> None:
    available = [[1], [2, 3, 4], [5, 6]]
    rng = np.random.default_rng(5)
    first = {draw(available, np.array([1.0, 0.0, 0.0]), LATENCY, 1, rng)[0] for _ in range(20)}
    assert first == {1}


def test_equal_latencies_go_by_position() -> None:
    same = np.ones(4)
    assert draw([[3, 1, 2, 0]], np.ones(1), same, 4, np.random.default_rng(0)) == [0, 1, 2, 3]


def test_quasi_random_gives_every_cluster_its_whole_share_first() -> None:
    # 6 theta / sum theta for weights 3, 2, 1 = 3, 2, 1 places, but A has only two devices: its third place is drawn.
    rng = np.random.default_rng(6)
    for _ in range(50):
        chosen = draw(CLUSTERS, np.array([3.0, 2.0, 1.0]), LATENCY, 6, rng, quasi=True)
        assert {0, 1, 2, 4, 5} < set(chosen)


def test_sampling_inside_a_cluster_goes_by_speed() -> None:
    rng = np.random.default_rng(7)
    latency = np.array([1.0, 2.0, 4.0])
    first = Counter(
        draw([[0, 1, 2]], np.ones(1), latency, 1, rng, inside="sampled")[0] for _ in range(10_000)
    )
    for device, share in ((0, 4 / 7), (1, 2 / 7), (2, 1 / 7)):
        assert within(first[device], 10_000, share)


def test_no_loss_and_no_latency_make_clusters_alike() -> None:
    assert cluster_weights(np.zeros(3), np.zeros(3), rho=0.5).tolist() == pytest.approx([1 / 6] * 3)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.lists(st.floats(0, 5), min_size=5, max_size=5),
    st.integers(1, 15),
    st.booleans(),
    st.sampled_from(["fastest", "sampled"]),
    st.integers(0, 99),
)
def test_whatever_the_clusters_devices_are_drawn_once_and_as_many_as_can_be(
    groups: list[int], theta: list[float], count: int, quasi: bool, inside: Any, seed: int
) -> None:
    clusters = [[i for i, group in enumerate(groups) if group == name] for name in range(5)]
    latency = np.linspace(0.0, 3.0, len(groups))
    rng = np.random.default_rng(seed)
    chosen = draw(clusters, np.array(theta), latency, count, rng, quasi=quasi, inside=inside)
    assert len(chosen) == len(set(chosen)) == min(count, len(groups))


# ------------------------------------------------------------------------------------------ TiFL


def test_tiers_are_equal_parts_of_the_order_by_latency() -> None:
    latency = {i: float(9 - i) for i in range(7)}
    assert make_tiers(latency, 3) == [[6, 5, 4], [3, 2], [1, 0]]
    assert make_tiers({1: 1.0, 0: 1.0}, 5) == [[0], [1]]
    assert nearest_tier([[6, 5, 4], [3, 2], [1, 0]], latency, 6.4) == 1


def test_less_accurate_tiers_with_credits_are_likelier() -> None:
    # n = 3 tiers have credits, D = 6: the least accurate gets 3/6, then 2/6, then 1/6.
    probabilities = tier_probabilities(np.array([0.9, 0.1, 0.5, 0.2]), np.array([1, 2, 5, 0]))
    assert probabilities == pytest.approx([1 / 6, 3 / 6, 2 / 6, 0])
    assert credits_each(200, 5) == 40
    assert credits_each(7, 5) == 2


def test_tiers_are_drawn_by_probability_among_those_that_can_be_reached() -> None:
    rng = np.random.default_rng(8)
    p, credits, reach = np.array([0.5, 0.3, 0.2]), np.array([1, 1, 1]), np.array([True, False, True])
    drawn = Counter(draw_tier(p, credits, reach, rng) for _ in range(10_000))
    assert drawn[1] == 0
    assert within(drawn[0], 10_000, 5 / 7)
    assert draw_tier(p, np.array([0, 1, 0]), reach, rng) in (0, 2)  # nobody with credits can be reached


def test_probabilities_change_only_when_the_tier_stalled() -> None:
    assert not stalled([0.1, 0.2, 0.3], 2)
    assert stalled([0.3, 0.2, 0.3], 2)
    assert not stalled([0.3, 0.2], 2)


# ------------------------------------------------------------------------------------------ Oort


def test_preferred_duration_is_a_percentile_of_all() -> None:
    durations = np.array([4.0, 1.0, 3.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert preferred_duration(durations, 30) == 4.0
    assert preferred_duration(durations, 99.9) == 10.0
    assert preferred_duration(durations, 100) == math.inf
    assert speed_factor(np.array([2.0, 8.0]), 4.0, 2.0).tolist() == [1.0, 0.25]
    assert speed_factor(np.array([2.0, 8.0]), math.inf, 2.0).tolist() == [1.0, 1.0]


def test_statistical_utility() -> None:
    # Losses 3 and 4: mean square 12.5, times the two samples.
    assert utility(torch.tensor([3.0, 4.0])) == pytest.approx(2 * math.sqrt(12.5))


def test_the_utility_is_over_the_samples_that_the_first_epoch_trains_on() -> None:
    """Not the first in stored order: a site sorted by label would be judged by one label."""
    train, samples = Train(batch=4, batches=3, epochs=5), 100
    drawn = np.concatenate(train.order(samples, np.random.default_rng(7)))
    assert first_epoch(train, samples, np.random.default_rng(7)).tolist() == sorted(drawn.tolist())
    assert max(drawn) > 12
    few = first_epoch(replace(train, batches=None), 6, np.random.default_rng(7))
    assert few.tolist() == list(range(6)), "all of one epoch, each once"


def test_oort_scores_by_hand() -> None:
    utilities = np.array([10.0, 20.0, 30.0, 40.0])
    durations = np.array([1.0, 1.0, 4.0, 1.0])
    last, tried = np.array([1.0, 4.0, 4.0, 0.0]), np.array([True, True, True, False])
    result = scores(utilities, durations, last, tried, number=8, preferred=2.0, oort=Oort())
    # range = 40 - 9.99 = 30.01; bonus sqrt(0.1 ln 8 / last); the third is twice as slow as T: a quarter.
    bonus = [math.sqrt(0.1 * math.log(8) / last) for last in (1, 4, 4)]
    expected = [0.01 / 30.01 + bonus[0], 10.01 / 30.01 + bonus[1], (20.01 / 30.01 + bonus[2]) / 4]
    assert result[:3] == pytest.approx(expected)
    assert math.isnan(result[3])


def oort_pick(count: int, exploration: float, tried: list[bool], seed: int = 0, **changes: float) -> tuple:
    n = len(tried)
    picked = pick(
        np.arange(1.0, n + 1),
        np.ones(n),
        np.ones(n),
        np.array(tried),
        number=10,
        count=count,
        exploration=exploration,
        preferred=math.inf,
        oort=Oort(**changes),  # type: ignore[arg-type]
        rng=np.random.default_rng(seed),
    )
    return picked.exploited, picked.explored, picked.filled


def test_oort_exploits_and_explores_by_share() -> None:
    exploited, explored, filled = oort_pick(10, 0.4, [True] * 20 + [False] * 20)
    assert len(exploited) == 6
    assert all(i < 20 for i in exploited)
    assert len(explored) == 4
    assert all(i >= 20 for i in explored)
    assert filled == []


def test_oort_exploits_only_above_the_cut_off() -> None:
    # cut_off 1: only the six best scores and the one at the rank of the cut-off (here the 7th) qualify.
    for seed in range(50):
        exploited, _, _ = oort_pick(6, 0.0, [True] * 20, seed, cut_off=1.0)
        assert set(exploited) <= set(range(13, 20))


def test_oort_never_picks_twice_and_copes_when_everybody_is_tried() -> None:
    for seed in range(50):
        chosen = [i for part in oort_pick(10, 0.2, [True] * 10, seed) for i in part]
        assert sorted(chosen) == list(range(10))
        chosen = [i for part in oort_pick(10, 0.9, [False] * 12, seed) for i in part]
        assert len(set(chosen)) == 10


def test_exploration_decays_to_its_floor_and_ends() -> None:
    assert next_exploration(0.9, Oort(), untried_left=True) == pytest.approx(0.855)
    assert next_exploration(0.2, Oort(), untried_left=True) == 0.2
    assert next_exploration(0.9, Oort(), untried_left=False) == 0.0


def test_the_pacer_relaxes_when_flat_and_tightens_when_it_jumps() -> None:
    flat, jump, steady = [1.0] * 40, [1.0] * 20 + [7.0] * 20, [1.0] * 20 + [2.0] * 20
    assert paced(10, flat, 40, Oort()) == 15
    assert paced(10, jump, 40, Oort()) == 5
    assert paced(10, steady, 40, Oort()) == 10
    assert paced(10, flat, 41, Oort()) == 10
    assert paced(10, flat[:39], 40, Oort()) == 10
    assert paced(98, flat, 40, Oort()) == 100


def test_the_simplified_oort_takes_the_highest_penalised_losses() -> None:
    losses, durations = np.array([1.0, 3.0, 2.0, 2.0]), np.array([1.0, 4.0, 1.0, 2.0])
    # T = 2: losses times 1, 1/4, 1, 1 = 1, 0.75, 2, 2.
    assert top(losses, durations, count=2, preferred=2.0) == [2, 3]


def test_wrong_oort_settings_are_one_sentence() -> None:
    for settings in ({"explore": 2.0}, {"percentile": 0.0}, {"pace_every": 0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            Oort(**settings)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ power-of-choice


def test_candidates_go_by_data_and_the_highest_losses_work() -> None:
    rng = np.random.default_rng(9)
    sizes = np.array([10.0, 30.0, 60.0, 0.0])
    first = Counter(candidates(sizes, 1, rng)[0] for _ in range(10_000))
    assert [within(first[i], 10_000, share) for i, share in enumerate((0.1, 0.3, 0.6))] == [True] * 3
    assert sorted(candidates(sizes, 9, rng)) == [0, 1, 2]
    assert highest(np.array([0.5, 2.0, 2.0, 1.0]), 3) == [1, 2, 3]
