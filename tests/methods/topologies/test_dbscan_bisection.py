"""Exactly so many clusters, whatever the distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import UserError
from covey.methods.topologies.labels import clusters_by_bisection
from covey.parts.group.distances import hellinger


def line(*places: float) -> np.ndarray:
    at = np.array(places)
    return np.abs(at[:, None] - at[None, :])


def test_two_label_clients_fall_into_their_ten_groups() -> None:
    """50 clients, 5 for each pair of classes (l, l + 1): the paper's 2-Label partition."""
    shares = np.zeros((50, 10))
    for client in range(50):
        shares[client, [client // 5, (client // 5 + 1) % 10]] = 0.5
    labels, how, eps = clusters_by_bisection(hellinger(shares, shares), clusters=10)
    assert labels.tolist() == [client // 5 for client in range(50)]
    assert how == "dbscan"
    assert eps < 0.1


def test_the_smallest_radius_is_found_and_noise_stands_alone() -> None:
    """0 1 2 | 10 11 12 | 30: below a radius of 1 all are alone, from 1 on there are three clusters."""
    labels, how, eps = clusters_by_bisection(line(0, 1, 2, 10, 11, 12, 30), clusters=3)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert (how, eps) == ("dbscan", pytest.approx(1))


def test_a_number_that_density_jumps_over_is_cut_by_linkage() -> None:
    """Six equal steps: DBSCAN knows 6 clusters or 1, never 2."""
    labels, how, _ = clusters_by_bisection(line(0, 1, 2, 3, 4, 5), clusters=2)
    assert how == "agglomerative"
    assert len(set(labels.tolist())) == 2


@given(seed=st.integers(0, 300), clients=st.integers(1, 30), data=st.data())
def test_always_as_many_as_asked_for(seed: int, clients: int, data: st.DataObject) -> None:
    clusters = data.draw(st.integers(1, clients))
    shares = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), size=clients)
    labels, _, _ = clusters_by_bisection(hellinger(shares, shares), clusters=clusters)
    assert sorted(set(labels.tolist())) == list(range(clusters))


def test_more_clusters_than_clients_is_explained() -> None:
    with pytest.raises(UserError, match="clusters is 3; allowed: from 1 to the number of clients, 2"):
        clusters_by_bisection(line(0, 1), clusters=3)
