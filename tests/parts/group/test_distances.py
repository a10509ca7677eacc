"""Distances between summaries, and clusters by density."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import UserError
from covey.parts.group import distances
from covey.parts.group.density import Density, nearest_fellow, numbered_from_zero, place, reaches
from covey.parts.group.distances import conditional, hellinger, hellinger_points, l2, over_shared


def test_hellinger_by_hand() -> None:
    # p = (1, 0), q = (1/2, 1/2): H^2 = 1 - sqrt(1/2) -> 0.5412; disjoint ones are at distance 1.
    p = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    table = hellinger(p, p)
    assert table[0, 1] == pytest.approx(0.541196, abs=1e-6)
    assert table[0, 2] == pytest.approx(1.0)
    assert np.array_equal(np.diag(table), np.zeros(3))


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_tables_agree_with_the_definition(n: int, m: int, bins: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.ones(bins), n), rng.dirichlet(np.ones(bins), m)
    slow = np.sqrt(((np.sqrt(a)[:, None] - np.sqrt(b)[None]) ** 2).sum(-1) / 2)
    assert hellinger(a, b) == pytest.approx(slow, abs=1e-7)
    assert l2(a, b) == pytest.approx(np.linalg.norm(a[:, None] - b[None], axis=-1), abs=1e-7)
    assert l2(hellinger_points(a), hellinger_points(b)) == pytest.approx(slow, abs=1e-7)


def test_a_table_of_a_set_with_itself_is_symmetric_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "BLOCK", 7)
    a = np.random.default_rng(0).dirichlet(np.ones(5), 31)
    table = l2(a, a)
    assert np.array_equal(table, table.T)
    assert table == pytest.approx(np.linalg.norm(a[:, None] - a[None], axis=-1), abs=1e-7)


def test_conditional_distance_is_the_mean_over_labels_with_the_missing_label_rule() -> None:
    # Three clients, three labels; nobody has label 2, so the mean is over labels 0 and 1.
    left, right, flat = [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]
    tables = np.array([[left, flat, flat], [right, flat, flat], [left, flat, flat]])
    has = np.array([[True, True, False], [True, True, False], [True, False, False]])
    table = conditional(tables, tables, has, has)
    assert table[0, 1] == pytest.approx((1.0 + 0.0) / 2)
    assert table[0, 2] == pytest.approx((0.0 + np.sqrt(0.5)) / 2)
    assert table[1, 2] == pytest.approx((1.0 + np.sqrt(0.5)) / 2)
    nobody = np.zeros_like(has)
    assert conditional(tables, tables, nobody, nobody).tolist() == np.zeros((3, 3)).tolist()


# ------------------------------------------------------------------------------------------ clusters


def majority_shares(clients: int, per_label: int, mix: tuple[float, ...], seed: int = 0) -> np.ndarray:
    """Two or more clients a majority label; the other labels of the mix are random."""
    rng = np.random.default_rng(seed)
    table = np.zeros((clients, clients // per_label))
    for client, row in enumerate(table):
        major = client // per_label
        others = rng.permutation(np.delete(np.arange(len(row)), major))[: len(mix) - 1]
        row[[major, *others]] = mix
    return table


def truth(clients: int, per_label: int) -> list[int]:
    return [client // per_label for client in range(clients)]


@pytest.mark.parametrize(
    "density",
    [
        Density(),
        Density(algorithm="dbscan"),
        Density(extract="xi", min_samples=5),
        Density(algorithm="hdbscan", min_samples=5),
    ],
)
def test_tight_clusters_are_found_by_every_algorithm(density: Density) -> None:
    points = np.repeat(np.eye(10), 5, axis=0) + np.random.default_rng(0).normal(0, 0.01, (50, 10))
    assert density(points).tolist() == truth(50, 5)
    assert density(l2(points, points), "precomputed").tolist() == truth(50, 5)


def test_the_papers_split_is_found_exactly_with_l2_and_eps_a_quarter() -> None:
    assert Density()(majority_shares(50, 5, (0.75, 0.12, 0.07, 0.06))).tolist() == truth(50, 5)


def test_like_clients_are_one_cluster_and_strangers_are_clusters_of_their_own() -> None:
    assert Density()(np.full((6, 4), 0.25)).tolist() == [0] * 6
    assert Density()(np.eye(4)).tolist() == [0, 1, 2, 3]


def test_one_client_is_a_cluster() -> None:
    for density in (Density(), Density(extract="xi"), Density(algorithm="hdbscan")):
        assert density(np.array([[1.0, 0.0]])).tolist() == [0]


def test_clusters_are_numbered_by_their_first_member() -> None:
    assert numbered_from_zero(np.array([3, -1, 0, 3, -1, 0])).tolist() == [0, 1, 2, 0, 3, 2]


def test_unseen_are_placed_and_nobody_moves() -> None:
    # Clusters at 0 (0, 1, 2 -> members 0.1 apart) and at 10; on a line, so distances are differences.
    spots = np.array([0.0, 0.1, 0.2, 10.0, 10.3])
    labels = np.array([0, 0, 0, 1, 1])
    nearest = nearest_fellow(labels, lambda at: np.abs(spots[at, None] - spots[at]))
    assert nearest == pytest.approx([0.1, 0.1, 0.1, 0.3, 0.3])
    reach = reaches(labels, nearest)
    assert reach == pytest.approx([0.1, 0.3])
    new = np.array([0.25, 9.8, 5.0, 5.1, 0.45])
    everyone = np.concatenate([spots, new])
    # 0.25 joins 0; 9.8 joins 1; 5.0 starts cluster 2 that 5.1 joins; 0.45 is 0.2 from 0.25: too far for cluster 0.
    assert place(np.abs(new[:, None] - everyone), labels, reach).tolist() == [0, 1, 2, 2, 3]


def test_a_cluster_of_one_reaches_as_far_as_the_middle_of_the_others() -> None:
    labels = np.array([0, 0, 1, 2, 2, 3, 3])
    nearest = np.array([0.2, 0.1, np.inf, 0.4, 0.4, 0.6, 0.6])
    assert reaches(labels, nearest).tolist() == [0.2, 0.4, 0.4, 0.6]
    assert reaches(np.array([0, 1]), np.array([np.inf, np.inf])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "kmeans"}, "algorithm is 'kmeans'; allowed: optics, dbscan, hdbscan"),
        ({"extract": "steep"}, "extract is 'steep'"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"xi": 1.0}, "xi is 1.0"),
        ({"min_samples": 1}, "min_samples is 1"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as error:
        Density(**settings)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_over_the_labels_that_both_have_worked_out_by_hand() -> None:
    """One label is shared each time and differs by sqrt(1 - sqrt(1/2)) = .5412; who shares none is 1 apart."""
    a = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.5, 0.5]]])
    b = np.array([[[0.5, 0.5], [1.0, 0.0]]])
    has_a, has_b = np.array([[True, False], [False, True]]), np.array([[True, True]])
    found = over_shared(a, b, has_a, has_b)
    assert found[:, 0] == pytest.approx([0.541196, 0.541196], abs=1e-6)
    assert over_shared(a, a, has_a, has_a).tolist() == [[0.0, 1.0], [1.0, 0.0]]
