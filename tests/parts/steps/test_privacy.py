"""Private summaries: the right noise on the right bins, and a budget that is kept."""

import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from covey.core import Client, Task
from covey.errors import Refused, UserError
from covey.parts.steps.privacy import Privacy, add_noise, present, published_noise, shares, spend
from covey.parts.steps.summaries import (
    LabelSummary,
    TargetSummary,
    feature_counts,
    feature_sensitivity,
    label_counts,
)
from covey.testing import small_federation


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------------ counting


def test_label_counts_cover_the_whole_agreed_space() -> None:
    assert label_counts(np.array([2, 0, 2, 2]), labels=5).tolist() == [1, 0, 3, 0, 0]


def test_a_sample_adds_one_unit_to_the_joint_histogram() -> None:
    """Four values of one sample of label 1: three in the lower bin, one in the upper, a quarter each."""
    x = np.array([[0.1, 0.2, 0.3, 0.9]])
    counts = feature_counts(x, np.array([1]), labels=2, bins=2, low=0.0, high=1.0, bound=1.0)
    assert counts.tolist() == [[0.0, 0.0], [0.75, 0.25]]


def test_targets_are_counted_in_bins_of_the_agreed_range() -> None:
    """Of -1, .1, .3, .9 and 2 in two bins over [0, 1]: three below one half, two above, with what lies outside."""
    values = np.array([-1.0, 0.1, 0.3, 0.9, 2.0])
    train = SimpleNamespace(labels=lambda: values)
    client = SimpleNamespace(id=0, train=train, live=False, state={}, account=None, rng=rng())
    reply = TargetSummary(bins=2)(client, Task())  # type: ignore[arg-type]
    assert reply.stats["shares"].tolist() == [0.6, 0.4]


def test_feature_counts_pool_all_values_of_a_label() -> None:
    x = np.array([[0.0, 0.49], [0.5, 1.0], [0.25, 0.3]])
    counts = feature_counts(x, np.array([1, 1, 0]), labels=3, bins=2, low=0.0, high=1.0)
    # Label 0: 0.25 and 0.3 below one half. Label 1: 0 and 0.49 below, 0.5 and 1 above. Label 2: nothing.
    assert counts.tolist() == [[2, 0], [2, 2], [0, 0]]


def test_values_outside_the_range_fall_into_the_outermost_bins() -> None:
    counts = feature_counts(np.array([[-7.0, 9.0]]), np.array([0]), labels=1, bins=4, low=0.0, high=1.0)
    assert counts.tolist() == [[1, 0, 0, 1]]


def test_many_samples_are_counted_as_one_by_one() -> None:
    x, y = rng().random((700, 3, 2, 2)), rng(1).integers(4, size=700)
    counts = feature_counts(x, y, labels=4, bins=20, low=0.0, high=1.0)
    expected = [np.histogram(x[y == label], bins=20, range=(0, 1))[0].tolist() for label in range(4)]
    assert counts.tolist() == expected


def test_one_sample_moves_a_label_count_by_1_and_a_feature_table_by_all_its_values() -> None:
    x, y = rng().random((30, 1, 4, 4)), rng(1).integers(3, size=30)
    tables = [feature_counts(x[:n], y[:n], labels=3, bins=20, low=0, high=1) for n in (29, 30)]
    assert np.abs(tables[1] - tables[0]).sum() == 16 == feature_sensitivity(x, None)
    bounded = [feature_counts(x[:n], y[:n], labels=3, bins=20, low=0, high=1, bound=4) for n in (29, 30)]
    assert np.abs(bounded[1] - bounded[0]).sum() == pytest.approx(4.0)
    assert feature_sensitivity(x, 4) == 4
    counts = [label_counts(y[:n], labels=3) for n in (29, 30)]
    assert np.abs(counts[1] - counts[0]).sum() == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([], dtype=np.int64), "client 7 has no training data"),
        (np.array([0, 5]), r"client 7 has the label 5, outside the agreed label space 0 to 3"),
        (np.array([0, -1]), r"client 7 has the label -1"),
        (np.array([0.5]), "needs whole-number labels"),
    ],
)
def test_what_cannot_be_counted_is_one_sentence(labels: np.ndarray, words: str) -> None:
    with pytest.raises(UserError, match=words):
        label_counts(labels, labels=4, who="client 7")


# ------------------------------------------------------------------------------------------ noise


@pytest.mark.parametrize("noise", ["simulated", "opendp"])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.1, 1.0), (2.0, 784.0)])
def test_every_bin_gets_laplace_noise_of_scale_sensitivity_over_epsilon(
    noise: str, epsilon: float, sensitivity: float
) -> None:
    if noise == "opendp":
        pytest.importorskip("opendp")
    privacy = Privacy(epsilon=epsilon, noise=noise)  # type: ignore[arg-type]
    counts = np.array([750.0, 120, 70, 60, 0, 0, 0, 0, 0, 0])
    generator = rng(5)
    draws = np.stack(
        [add_noise(counts, sensitivity=sensitivity, privacy=privacy, rng=generator) for _ in range(1_000)]
    )
    scaled = (draws - counts) / (sensitivity / epsilon)
    # The whole sample, and every bin on its own (empty ones too), against Laplace(0, 1).
    assert stats.kstest(scaled.ravel(), "laplace").pvalue > 1e-4
    for column in scaled.T:
        assert stats.kstest(column, "laplace").pvalue > 1e-5
        assert np.abs(column).mean() == pytest.approx(1.0, abs=5 / math.sqrt(1_000))


def test_simulated_noise_is_the_same_for_the_same_stream_and_opendp_never_is() -> None:
    counts = np.arange(10.0)
    simulated = Privacy(epsilon=1.0)
    first, second = (add_noise(counts, sensitivity=1, privacy=simulated, rng=rng(3)) for _ in range(2))
    assert np.array_equal(first, second)
    pytest.importorskip("opendp")
    secure = Privacy(epsilon=1.0, noise="opendp")
    first, second = (add_noise(counts, sensitivity=1, privacy=secure, rng=rng(3)) for _ in range(2))
    assert not np.array_equal(first, second)


def test_without_epsilon_nothing_is_added() -> None:
    counts = np.arange(4.0)
    assert add_noise(counts, sensitivity=1, privacy=Privacy(), rng=rng()).tolist() == [0, 1, 2, 3]


def test_published_noise_leaves_empty_bins_empty_and_never_removes_a_label() -> None:
    counts = np.array([3.0, 0.0, 0.5, 0.0])
    draws = np.stack([published_noise(counts, epsilon=0.01, rng=rng(seed)) for seed in range(500)])
    assert (draws[:, [1, 3]] == 0).all()
    assert (draws[:, [0, 2]] > 0).all()
    assert (draws[:, 0] == 1).mean() == pytest.approx(0.5, abs=0.1)  # a negative result becomes min(count, 1)
    assert (draws[:, 2] == 0.5).any()


def test_shares_are_clipped_normalised_and_uniform_when_nothing_is_left() -> None:
    assert shares(np.array([-3.0, 1.0, 3.0])).tolist() == [0, 0.25, 0.75]
    assert shares(np.array([-3.0, -1.0])).tolist() == [0.5, 0.5]
    assert shares(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_a_label_is_there_when_it_stands_out_of_the_noise() -> None:
    # Row totals 0 and 100; noise of scale 1 on 2 bins has a standard deviation of 2: three of them are 6.
    counts = np.array([[3.0, 2.0], [40.0, 60.0]])
    assert present(counts, sensitivity=1, privacy=Privacy(epsilon=1.0)).tolist() == [False, True]
    assert present(counts, sensitivity=1, privacy=Privacy()).tolist() == [True, True]


# ------------------------------------------------------------------------------------------ budget


def test_a_client_spends_its_budget_and_then_refuses() -> None:
    account: dict[str, object] = {}
    privacy = Privacy(epsilon=0.1, budget=0.3)
    assert [spend(account, privacy) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    with pytest.raises(
        Refused, match=r"a summary of epsilon 0.1 is refused: 0.3 of the budget of 0.3 is spent"
    ):
        spend(account, privacy)
    assert account["epsilon"] == pytest.approx(0.3)


def test_what_is_not_private_costs_no_epsilon_and_says_so() -> None:
    published = Privacy(epsilon=0.1, noise="published")
    assert spend({}, published) == 0.0
    assert "NOT differentially private" in published.note()
    assert "no differential privacy" in Privacy().note()
    assert "(0.1, 0)-differentially private" in Privacy(epsilon=0.1, noise="opendp").note()
    assert "drawn from the run's seed" in Privacy(epsilon=0.1).note()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0; allowed: a number above 0 and at most 1,000"),
        ({"epsilon": -1}, "epsilon is -1"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": "low"}, "epsilon is 'low'"),
        ({"epsilon": 1.0, "budget": 0}, "budget is 0"),
        ({"budget": 1.0}, "no budget can be kept"),
        ({"epsilon": 1.0, "noise": "published", "budget": 1.0}, "no budget can be kept"),
        ({"noise": "gauss"}, "noise is 'gauss'; allowed: simulated, opendp, published"),
    ],
)
def test_wrong_privacy_settings_are_one_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as error:
        Privacy(**settings)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_a_real_device_never_draws_its_noise_from_the_runs_seed() -> None:
    pytest.importorskip("opendp")
    told: dict[bool, list[list[float]]] = {}
    for live in (False, True):
        for _ in range(2):
            client = replace(small_client(), live=live, rng=rng(1))
            reply = LabelSummary(privacy=Privacy(epsilon=0.5))(client, Task())
            told.setdefault(live, []).append(reply.stats["shares"].tolist())
            assert reply.stats["epsilon"] == 0.5
    assert told[False][0] == told[False][1]
    assert told[True][0] != told[True][1]


def small_client() -> Client:
    share = small_federation().shares[0]
    bench: Any = None  # a summary runs no model
    return Client(id=0, train=share.train, test=share.test, state={}, rng=rng(), bench=bench, seed=0, round=1)


def test_missing_opendp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    privacy = Privacy(epsilon=0.123456, noise="opendp")
    with pytest.raises(UserError, match=r"covey\[private\]"):
        add_noise(np.zeros(2), sensitivity=1.0, privacy=privacy, rng=rng())
