"""Graphs by name, generator or edge list, and the matrices with which nodes mix."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import UserError
from covey.parts.mix.graphs import SHAPES, adjacency, graph, mixing


def matrix(shape: str, nodes: int) -> np.ndarray:
    return mixing(adjacency(graph(shape, nodes))).toarray()


@pytest.mark.parametrize(
    ("shape", "nodes", "links"),
    [
        ("full", 50, 2450),
        ("ring", 50, 100),
        ("wheel", 50, 100),
        ("full", 10, 90),
        ("ring", 10, 20),
        ("wheel", 10, 20),
        ("star", 10, 18),
        ("torus", 50, 200),
        ("exponential", 16, 64),
        ("random_regular_graph(4, n)", 50, 200),
        ("grid_2d_graph(5, 10, periodic=True)", 50, 200),
        ("circulant_graph(n, [1, 2, 4])", 12, 72),
        ("cycle_graph", 7, 14),
    ],
)
def test_links_of_each_shape(shape: str, nodes: int, links: int) -> None:
    made = graph(shape, nodes)
    assert made.number_of_nodes() == nodes
    assert made.number_of_edges() == links


def test_the_wheel_has_a_one_way_rim_and_two_way_diameters() -> None:
    made = graph("wheel", 6)
    assert sorted(made.predecessors(3)) == [0, 4]
    assert sorted(made.predecessors(0)) == [1, 3]
    assert {degree for _, degree in made.in_degree()} == {2}


def test_the_last_node_of_an_odd_wheel_has_no_diameter() -> None:
    assert dict(graph("wheel", 7).in_degree()) == {**dict.fromkeys(range(6), 2), 6: 1}


def test_edges_name_the_sender_first() -> None:
    receives = adjacency(graph([[0, 1], [2, 1]], 3)).toarray()
    assert receives.tolist() == [[0, 0, 0], [1, 0, 1], [0, 0, 0]]


def test_a_networkx_graph_goes_in_and_comes_out() -> None:
    made = graph(nx.path_graph(["a", "b", "c"]), 3)
    assert isinstance(made, nx.DiGraph)
    assert sorted(made.edges()) == [(0, 1), (1, 0), (1, 2), (2, 1)]


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_tiny_graphs_still_mix(shape: str, nodes: int) -> None:
    np.testing.assert_allclose(matrix(shape, nodes).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("rnig", "graph is 'rnig'; allowed: full, ring, wheel"),
        ("__import__('os').system('true')", "allowed: full, ring"),
        ("read_edgelist('/etc/passwd')", "allowed: full, ring"),
        ("star_graph(n)", "has 7 nodes, but 6 are needed"),
        ("random_regular_graph(3, 5)", "graph 'random_regular_graph"),
        ("cycle_graph(m)", "graph 'cycle_graph"),
    ],
)
def test_a_wrong_graph_is_explained(shape: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        graph(shape, 6)


def test_a_wrong_edge_is_explained() -> None:
    with pytest.raises(UserError, match=r"edge \[0, 9\]: an edge is \[sender, receiver\], both from 0 to 2"):
        graph([[0, 9]], 3)


@pytest.mark.parametrize(
    ("shape", "rounds", "coefficients"),
    [
        ("ring", 1, [0, 0, 1, 1, 1, 0]),
        ("ring", 2, [0, 1, 2, 3, 2, 1]),
        ("ring", 3, [2, 3, 6, 7, 6, 3]),
        ("wheel", 1, [1, 0, 0, 1, 1, 0]),
        ("wheel", 2, [2, 2, 0, 2, 2, 1]),
        ("wheel", 3, [5, 6, 3, 4, 6, 3]),
    ],
)
def test_equation_1_for_node_3(shape: str, rounds: int, coefficients: list[int]) -> None:
    """Eq. 1; its printed round 2 belongs to node 2, the values here are those of node 3."""
    power = np.linalg.matrix_power(matrix(shape, 6), rounds)
    np.testing.assert_allclose(power[3] * 3**rounds, coefficients, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "nodes", "second"),
    [
        ("wheel", 6, 3**-0.5),
        ("ring", 6, 2 / 3),
        ("wheel", 10, 0.8324),
        ("ring", 10, 0.8727),
        ("wheel", 50, 0.9930),
        ("ring", 50, 0.9947),
        ("full", 50, 0.0),
    ],
)
def test_second_eigenvalue(shape: str, nodes: int, second: float) -> None:
    sizes = np.sort(np.abs(np.linalg.eigvals(matrix(shape, nodes))))[::-1]
    assert sizes[0] == pytest.approx(1)
    assert sizes[1] == pytest.approx(second, abs=5e-5)


@given(nodes=st.integers(3, 40), shape=st.sampled_from(["full", "ring", "wheel", "exponential", "star"]))
def test_mixing_keeps_the_mean(nodes: int, shape: str) -> None:
    if shape == "wheel":
        nodes += nodes % 2
    W = matrix(shape, nodes)
    assert (W >= 0).all()
    np.testing.assert_allclose(W.sum(axis=1), 1)
    np.testing.assert_allclose(W.sum(axis=0), 1)


@given(seed=st.integers(0, 500), nodes=st.integers(2, 20))
def test_metropolis_is_symmetric_and_doubly_stochastic_on_any_two_way_graph(seed: int, nodes: int) -> None:
    made = graph(f"gnp_random_graph(n, 0.4, seed={seed})", nodes)
    rng = np.random.default_rng(seed)
    W = mixing(adjacency(made), "metropolis", rng.random(nodes) < 0.7).toarray()
    np.testing.assert_allclose(W, W.T)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    assert (W >= -1e-12).all()


def test_metropolis_on_a_star_by_hand() -> None:
    np.testing.assert_allclose(
        matrix("star", 4) * 4, [[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]
    )


def test_metropolis_refuses_one_way_links() -> None:
    with pytest.raises(UserError, match=r'weights = "metropolis": needs two-way links'):
        mixing(adjacency(graph("wheel", 6)), "metropolis")


def test_the_absent_keep_their_row_and_are_not_heard() -> None:
    present = np.array([True, True, False, True, True, True])
    W = mixing(adjacency(graph("ring", 6)), "auto", present).toarray()
    assert W[2].tolist() == [0, 0, 1, 0, 0, 0]
    assert W[:, 2].tolist() == [0, 0, 1, 0, 0, 0]
    np.testing.assert_allclose(W[1], [0.5, 0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(W[5], [1 / 3, 0, 0, 0, 1 / 3, 1 / 3])
