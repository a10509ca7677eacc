"""Density clusters of fleets too large to be compared one by one."""

import numpy as np
import pytest

from covey.core.round import empty_state, open_round
from covey.errors import UserError
from covey.methods.haccs import grouping
from covey.methods.haccs.grouping import BySummary
from covey.parts.group import density
from covey.parts.group.density import Density
from covey.parts.selection.haccs import cluster_weights
from covey.parts.steps.summaries import FeatureSummary, LabelSummary
from covey.testing import small_fleet


def kinds_and_shares(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Clients of five clusters, each with nearly all samples of one label."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 5, count)
    shares = 0.02 * rng.dirichlet(np.ones(5), count)
    shares[np.arange(count), kinds] += 0.98
    return kinds, shares


@pytest.mark.parametrize("extract", ["dbscan", "xi"])
def test_groups_first_give_the_clusters_of_all(monkeypatch: pytest.MonkeyPatch, extract: str) -> None:
    kinds, shares = kinds_and_shares(600)
    one_by_one = Density(extract="dbscan")(shares)
    monkeypatch.setattr(density, "MOST", 500)
    monkeypatch.setattr(density, "CENTRES", 40)
    found = Density(extract=extract)(shares)  # type: ignore[arg-type]
    assert all(len(set(kinds[found == cluster])) == 1 for cluster in np.unique(found))
    if extract == "dbscan":
        assert np.array_equal(found, one_by_one)


def test_a_client_far_from_all_others_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "MOST", 500)
    monkeypatch.setattr(density, "CENTRES", 40)
    _, shares = kinds_and_shares(600)
    shares[17] = 0.2  # the middle of all
    found = Density(eps=0.1)(shares)
    assert (found == found[17]).sum() == 1
    assert found.max() + 1 == 6


def test_too_many_feature_summaries_are_refused_in_a_sentence_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "MOST_TABLE", 7)
    fleet = small_fleet()
    now = open_round(empty_state(fleet), fleet)
    with pytest.raises(UserError, match=r"8 clients are to tell a feature summary; .* Allowed: 7, or label"):
        BySummary(ask=FeatureSummary())(now)
    assert not fleet.ledger.total
    assert len(BySummary(ask=LabelSummary())(now)) == 8


def test_negative_losses_count_from_the_lowest() -> None:
    """Losses -3, -1, 1 count 0, 2, 4: shares 0, 1/3, 2/3 of the loss term."""
    theta = cluster_weights(np.ones(3), np.array([-3.0, -1.0, 1.0]), rho=0.0)
    assert theta.tolist() == pytest.approx([0.0, 1 / 3, 2 / 3])
