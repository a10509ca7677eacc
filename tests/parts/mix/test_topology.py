"""Cluster topologies as factors: every message of Table I, who leads, and what the estimator says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import UserError
from covey.parts.mix.combine import combine
from covey.parts.mix.estimate import Design, estimate, recommend, spectral_gap
from covey.parts.mix.graphs import adjacency, graph
from covey.parts.mix.topology import collect, events, messages, representatives, round_factors, succession
from tests.parts.mix.table_1 import TABLE_1


@pytest.mark.parametrize(("pair", "counts"), TABLE_1.items())
def test_all_18_counts_of_table_1(pair: tuple, counts: tuple[int, int]) -> None:
    for every, expected in zip((2, 1), counts, strict=True):
        design = Design(
            kind=pair[0], backbone=pair[1], nodes=50, clusters=10, cluster_every=every, backbone_every=every
        )
        assert sum(messages(f) for factors in design.schedule(100) for f in factors) == expected


@pytest.mark.parametrize(("file", "place"), [("table1-full", 0), ("table1-fashion-full", 1)])
def test_the_ledgers_of_the_stored_runs_have_all_18_counts(file: str, place: int) -> None:
    """Stored at the paper's scale: in every run of 100 rounds, for both partitions."""
    stored = Path(__file__).parents[3] / "experiments" / "topologies" / "results" / f"{file}.json"
    cells = [cell for cell in json.loads(stored.read_text())["cells"] if cell["column"] == "messages"]
    counted = {(cell["case"], tuple(cell["row"].split(", "))): set(cell["values"]) for cell in cells}
    cases = {case for case, _ in counted}
    assert len(cases) == 2
    assert counted == {(case, pair): {counts[place]} for case in cases for pair, counts in TABLE_1.items()}


def test_a_third_layer_is_a_backbone_of_regions() -> None:
    """Two regions of five clusters, joined by two links in each direction: 2 x 5 x 4 + 4 = 44 links.

    Of 50 clients 40 are no representatives. A backbone round sends 44 + 40 models, a cluster round 40 + 40, and of
    100 rounds half are one, half the other: 50 x 84 + 50 x 80.
    """
    design = Design(
        kind="hierarchical",
        backbone="ring_of_cliques(2, 5)",
        nodes=50,
        clusters=10,
        cluster_every=2,
        backbone_every=2,
    )
    assert sum(messages(f) for factors in design.schedule(100) for f in factors) == 8200
    links = adjacency(graph("ring_of_cliques(2, 5)", 10)).toarray() != 0
    assert links[:5, :5].sum() == links[5:, 5:].sum() == 20
    assert links[:5, 5:].sum() == links[5:, :5].sum() == 2


def test_equal_periods_of_2_never_meet() -> None:
    both = [events(r, kind="hierarchical", cluster_every=2, backbone_every=2) for r in range(4)]
    assert both == [(False, True), (True, False), (False, True), (True, False)]


def test_the_next_takes_over_when_a_representative_is_away() -> None:
    order = succession([5, 9, 9, 1])
    clusters = np.array([0, 0, 0, 1])
    assert order.tolist() == [1, 2, 0, 3]
    assert representatives(clusters, order, np.array([True] * 4)) == {0: 1, 1: 3}
    assert representatives(clusters, order, np.array([True, False, True, False])) == {0: 2}


def test_most_links_goes_before_most_samples() -> None:
    assert succession([1, 2, 3], degree=[2, 2, 1]).tolist() == [1, 0, 2]


def two_clusters(present: list[bool], **fired: bool) -> np.ndarray:
    """Nodes 0 1 2, 3 4 with 1 3 1, 2 1 samples on a backbone of two: the product of a round."""
    samples = [1, 3, 1, 2, 1]
    product = np.eye(5)
    for factor in round_factors(
        clusters=np.array([0, 0, 0, 1, 1]),
        samples=samples,
        order=succession(samples),
        present=np.array(present),
        backbone=adjacency(graph("full", 2)),
        place=np.array([1, 0]),
        **{"cluster_event": False, "backbone_event": False} | fired,
    ):
        product = factor @ product
    return product


def test_cluster_event_is_the_sample_weighted_mean() -> None:
    assert two_clusters([True] * 5, cluster_event=True) == pytest.approx(
        np.array([[0.2, 0.6, 0.2, 0, 0]] * 3 + [[0, 0, 0, 2 / 3, 1 / 3]] * 2)
    )


def test_backbone_event_spreads_the_representatives_only() -> None:
    assert two_clusters([True] * 5, backbone_event=True) == pytest.approx(np.array([[0, 0.5, 0, 0.5, 0]] * 5))


def test_both_events_average_the_clusters_first() -> None:
    once = two_clusters([True] * 5, cluster_event=True, backbone_event=True)
    assert once == pytest.approx(np.array([[0.1, 0.3, 0.1, 1 / 3, 1 / 6]] * 5))


def test_a_dead_cluster_and_a_dead_member_stay_as_they_were() -> None:
    product = two_clusters([True, False, True, False, False], cluster_event=True, backbone_event=True)
    assert product == pytest.approx(
        np.array(
            [[0.5, 0, 0.5, 0, 0], [0, 1, 0, 0, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
        )
    )


def test_nobody_present_sends_nothing() -> None:
    assert two_clusters([False] * 5, cluster_event=True, backbone_event=True) == pytest.approx(np.eye(5))


def test_collect_takes_replies_and_keeps_the_rows_of_the_lost() -> None:
    old, replies = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[30.0], [10.0]])
    assert combine([collect(3, [2, 0])], [old, replies]).tolist() == [[10.0], [2.0], [30.0]]


@given(seed=st.integers(0, 300), nodes=st.integers(1, 25), fired=st.tuples(st.booleans(), st.booleans()))
def test_any_round_is_an_average(seed: int, nodes: int, fired: tuple[bool, bool]) -> None:
    """Whoever is away: rows are averages, the absent keep their model, links are counted."""
    rng = np.random.default_rng(seed)
    clusters = np.unique(rng.integers(0, nodes, nodes), return_inverse=True)[1]
    count = int(clusters.max()) + 1
    present = rng.random(nodes) < 0.7
    samples = rng.integers(1, 100, nodes).tolist()
    factors = round_factors(
        clusters=clusters,
        samples=samples,
        order=succession(samples),
        present=present,
        backbone=adjacency(graph("wheel", count)),
        place=rng.permutation(count),
        cluster_event=fired[0],
        backbone_event=fired[1],
    )
    product = np.eye(nodes)
    for factor in factors:
        product = factor @ product
    np.testing.assert_allclose(product.sum(axis=1), 1)
    assert (product >= 0).all()
    away = ~present
    np.testing.assert_array_equal(product[away], np.eye(nodes)[away])
    assert not product[np.ix_(present, away)].any()
    members = int(present.sum()) - len(np.unique(clusters[present]))
    uploads, downloads = fired[0] * members, any(fired) * members
    rim = sum(messages(f) for f in factors) - uploads - downloads
    assert 0 <= rim <= fired[1] * 2 * count


FIGURE_2 = {
    "full": [0.9129, 0, 0, 0, 0, 0, 0],
    "wheel": [0.9129, 0.4082, 0.2079, 0.1142, 0.0647, 0.0372, 0.0214],
    "ring": [0.9129, 0.4082, 0.2606, 0.1717, 0.1142, 0.0760, 0.0507],
}


@pytest.mark.parametrize(("backbone", "deviations"), FIGURE_2.items())
def test_figure_2(backbone: str, deviations: list[float]) -> None:
    design = Design(kind="decentralized", backbone=backbone, nodes=6, clusters=6)
    found = estimate(design, rounds=6, parameters=1)
    assert found.deviation == pytest.approx(deviations, abs=5e-5)
    assert found.spread == pytest.approx(found.deviation)


def test_semi_decentralised_agrees_but_never_hears_its_members() -> None:
    """10 of 50 are heard: the deviation ends at sqrt(10 (1/10 - 1/50)^2 + 40 / 50^2)."""
    design = Design(kind="semi-decentralized", backbone="full", nodes=50, clusters=10)
    found = estimate(design, rounds=1, parameters=1)
    assert found.spread[1] == pytest.approx(0, abs=1e-12)
    assert found.deviation[1] == pytest.approx((10 * 0.08**2 + 40 / 2500) ** 0.5)


def test_a_message_costs_four_bytes_a_parameter() -> None:
    design = Design(kind="decentralized", backbone="ring", nodes=50, clusters=10)
    found = estimate(design, rounds=3, parameters=21_840)
    assert (found.messages, found.bytes) == (300, 300 * 87_360)


def test_the_gap_is_counted_a_round() -> None:
    every_round = Design(kind="decentralized", backbone="ring", nodes=6, clusters=6)
    assert estimate(every_round, rounds=1, parameters=1).gap == pytest.approx(1 / 3)
    every_other = Design(kind="decentralized", backbone="ring", nodes=6, clusters=6, backbone_every=2)
    assert estimate(every_other, rounds=1, parameters=1).gap == pytest.approx(1 - (2 / 3) ** 0.5)
    assert spectral_gap([[]]) == 0


def test_a_thousand_nodes_by_arnoldi_agree_with_the_closed_form() -> None:
    """A torus of 45 x 50 has lambda_2 = (3 + 2 cos(2 pi / 50)) / 5."""
    design = Design(kind="decentralized", backbone="torus", nodes=2250, clusters=1)
    assert 1 - spectral_gap(design.schedule(1)) == pytest.approx((3 + 2 * np.cos(2 * np.pi / 50)) / 5)


def test_the_recommendation_fits_the_budget_and_prefers_agreement_then_few_messages() -> None:
    ranked = recommend(
        nodes=50, clusters=10, rounds=100, parameters=1, budget=13_000, backbones=["full", "wheel", "ring"]
    )
    assert len(ranked) == 9
    assert all(found.messages <= 13_000 for found in ranked)
    best = ranked[0].design
    assert (best.kind, best.backbone, best.backbone_every) == ("semi-decentralized", "full", 1)
    order = [(found.design.kind, found.design.backbone) for found in ranked]
    for kind in ("decentralized", "hierarchical", "semi-decentralized"):
        assert order.index((kind, "wheel")) < order.index((kind, "ring"))


def test_a_budget_that_nothing_fits_gives_nothing() -> None:
    assert not recommend(nodes=50, clusters=10, rounds=10, parameters=1, budget=10, backbones=["ring"])


def test_more_clusters_than_nodes_is_explained() -> None:
    with pytest.raises(UserError, match="clusters is 7; allowed: at most the number of nodes, 6"):
        Design(kind="hierarchical", backbone="ring", nodes=6, clusters=7)
