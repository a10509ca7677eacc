"""Class sums under noise: what one sample can change, how much noise that takes, and what the server makes of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from covey.core.round import empty_state, open_round
from covey.core.shows import NOTHING, shows_of
from covey.parts.portraits.clusters import class_distances
from covey.privacy.apply import ASKED_SHARE, made_private
from covey.privacy.composition import composed
from covey.privacy.refusals import parts_of
from covey.privacy.settings import Private
from covey.privacy.sketch import COUNTED_AS, SketchClasses, class_table, projection
from covey.runs.config import resolve
from covey.testing import small_fleet


def test_a_table_holds_sums_of_unit_vectors_and_counts() -> None:
    """(3, 4) and (6, 8) are both (.6, .8), whatever the directions they are projected to."""
    x, labels = torch.tensor([[3.0, 4.0], [6.0, 8.0], [-2.0, 0.0]]), np.array([0, 0, 1])
    table = class_table(x, labels, classes=3, dims=2)
    sums = table[:, :2] @ projection(2, 2).T
    np.testing.assert_allclose(sums, [[1.2, 1.6], [-1.0, 0.0], [0.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(table[:, 2], [2 * COUNTED_AS, COUNTED_AS, 0.0])


def test_a_sample_moves_the_table_by_no_more_than_the_noise_is_scaled_for() -> None:
    x, labels = torch.randn(30, 1, 9, 9), np.arange(30) % 5
    whole = class_table(x, labels, classes=5, dims=16)
    for left_out in range(30):
        rest = np.delete(np.arange(30), left_out)
        moved = np.linalg.norm(whole - class_table(x[rest], labels[rest], classes=5, dims=16))
        assert moved == pytest.approx(math.sqrt(1 + COUNTED_AS**2))


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 8.0])
def test_the_noise_is_that_of_the_analytic_gaussian_mechanism(epsilon: float) -> None:
    """Balle and Wang (2018), theorem 8: Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z) = delta."""
    step = SketchClasses(epsilon=epsilon, delta=1e-5)
    z = step.noise
    delta = norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * norm.cdf(-0.5 / z - epsilon * z)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert step.scale == pytest.approx(z * math.sqrt(1 + COUNTED_AS**2))
    assert composed({step.loss: 1}, 1e-5, "sample") == pytest.approx(epsilon, rel=1e-2)


def test_distances_of_noisy_tables_are_unbiased() -> None:
    """Two clients of 400 samples of one class, unit vectors about means that are .36 apart when squared."""
    rng, step = np.random.default_rng(3), SketchClasses(epsilon=2.0, delta=1e-5, dims=4)
    found = []
    for _ in range(400):
        portraits = []
        for first in (0.8, 0.2):
            # cos with mean `first` along one direction, the rest at random: means (first, 0, 0, 0)
            along = np.clip(first + 0.1 * rng.standard_normal(400), -1, 1)
            rest = rng.standard_normal((400, 3))
            rest *= (np.sqrt(1 - along**2) / np.linalg.norm(rest, axis=1))[:, None]
            sums = np.concatenate([[along.sum()], rest.sum(axis=0)])[None]
            noise = step.scale * rng.standard_normal((1, 5))
            told = {"sums": sums + noise[:, :4], "counts": np.array([400.0]) + noise[:, 4] / COUNTED_AS}
            portraits += step.portraits(told)
        found.append(class_distances(portraits).distance[0, 1])
    assert np.mean(found) == pytest.approx(0.36, abs=4 * np.std(found) / 20 + 0.005)


def test_an_answer_is_drawn_once_for_the_same_data() -> None:
    fleet, step = small_fleet(), SketchClasses(epsilon=1.0)
    now = open_round(empty_state(fleet), fleet)
    first, again = now.ask(step, now.here), now.ask(step, now.here)
    assert all(np.array_equal(a.stats["sums"], b.stats["sums"]) for a, b in zip(first, again, strict=True))
    other = now.ask(replace(step, dims=32), now.here)
    assert other[0].stats["sums"].shape == (10, 32)


def test_covey_hides_samples_as_it_is() -> None:
    """Every part takes its private form: nothing exact is shown, and all that is told keeps to epsilon."""
    method = resolve({"method": "covey"}).method
    private = made_private(method, Private(level="example", epsilon=8.0, clip=1.0), clients=20, rounds=10)
    assert isinstance(private.group.describe, SketchClasses)
    assert private.group.describe.epsilon == ASKED_SHARE * 8.0
    assert private.local.epsilon == (1 - ASKED_SHARE) * 8.0
    assert (method.local.train.lr, private.local.train.lr, private.local.train.lr_decay) == (0.1, 0.05, 1.0)
    for kind, part in parts_of(private):
        shown = shows_of(part)
        assert kind == "local" or shown == NOTHING or shown.in_updates, kind


@pytest.mark.parametrize(("epsilon", "corrects"), [(1.0, False), (3.9, False), (4.0, True)])
def test_under_little_epsilon_no_correction_adds_up_the_noise(epsilon: float, corrects: bool) -> None:
    settings = Private(level="example", epsilon=epsilon)
    for method, kept in (("covey", corrects), ("fedadam", True)):
        private = made_private(resolve({"method": method}).method, settings, clients=20, rounds=10)
        assert (private.update is not None) == kept, method


def test_a_sample_that_a_servers_scale_makes_endless_counts_without_a_direction() -> None:
    """Else a class with it would be NaN, which no noise hides: a server could ask for any one value of a sample."""
    x = torch.tensor([[1.0, 0.0], [torch.inf, 0.0], [torch.nan, 1.0]])
    table = class_table(x, np.array([0, 0, 1]), 2, 2)
    assert np.isfinite(table).all()
    assert np.linalg.norm(table[0, :-1]) == pytest.approx(1.0)
    assert (table[:, -1] / COUNTED_AS).tolist() == [2.0, 1.0]
