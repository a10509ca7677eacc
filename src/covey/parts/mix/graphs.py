"""Who sends to whom: graphs by name, by networkx generator or by edge list, and their mixing matrices.

A networkx edge ``u -> v`` is a link on which u sends and v receives; in every matrix the row is the receiver.
"""

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

from covey.errors import UserError

GraphSpec = str | Sequence[Sequence[int]]
"""A named shape, a networkx generator call such as ``"grid_2d_graph(5, 10, periodic=True)"``, or edges."""

Weights = Literal["auto", "equal", "metropolis"]

if TYPE_CHECKING:
    Links = nx.DiGraph[Any]
    AnyGraph = nx.Graph[Any]
else:
    Links, AnyGraph = nx.DiGraph, nx.Graph


def graph(shape: GraphSpec | AnyGraph, nodes: int, *, seed: int = 0) -> Links:
    """The links among `nodes` nodes, numbered from 0: two-way links are two edges, self-links are dropped.

    In a generator call ``n`` stands for the number of nodes; `seed` goes to generators that take one.
    """
    if nodes < 1:
        raise UserError(f"nodes = {nodes}: a graph needs at least 1 node")
    if isinstance(shape, nx.Graph):
        made = shape
    elif not isinstance(shape, str):
        made = _from_edges(shape, nodes)
    elif shape in SHAPES:
        made = SHAPES[shape](nodes)
    else:
        made = _from_generator(shape, nodes, seed)
    if made.number_of_nodes() != nodes:
        raise UserError(f"graph {_name(shape)}: has {made.number_of_nodes()} nodes, but {nodes} are needed")
    if set(made) != set(range(nodes)):
        made = nx.convert_node_labels_to_integers(made)
    links: Links = nx.DiGraph()
    links.add_nodes_from(range(nodes))
    links.add_edges_from((u, v) for u, v in made.to_directed().edges() if u != v)
    return links


def full(nodes: int) -> Links:
    """Everybody sends to everybody: n (n-1) links."""
    return nx.DiGraph([(j, i) for i in range(nodes) for j in range(nodes)])


def ring(nodes: int) -> Links:
    """Node i receives from i-1 and i+1: 2n links."""
    return nx.DiGraph([((i + step) % nodes, i) for i in range(nodes) for step in (-1, 1)])


def wheel(nodes: int) -> Links:
    """The paper's wheel: a one-way rim (i receives from i+1) and two-way diameters (i, i + n/2): 2n links.

    It has no hub. With an odd number of nodes the last one has no diameter, so it receives on one link only.
    """
    rim = [((i + 1) % nodes, i) for i in range(nodes)]
    half = nodes // 2
    return nx.DiGraph(rim + [link for i in range(half) for link in ((i, i + half), (i + half, i))])


def star(nodes: int) -> Links:
    """Node 0 in the middle, linked both ways to all others: 2 (n-1) links."""
    return nx.DiGraph([link for i in range(1, nodes) for link in ((0, i), (i, 0))] or [(0, 0)])


def torus(nodes: int) -> Links:
    """The most nearly square grid with opposite borders joined: 4 neighbours each."""
    height = next(h for h in range(math.isqrt(nodes), 0, -1) if nodes % h == 0)
    return nx.DiGraph(nx.grid_2d_graph(height, nodes // height, periodic=True))


def exponential(nodes: int) -> Links:
    """Node i receives from i + 1, i + 2, i + 4, i + 8, ... (mod n): n log2(n) one-way links."""
    hops = [2**k for k in range(max(1, math.ceil(math.log2(max(2, nodes)))))]
    return nx.DiGraph([((i + hop) % nodes, i) for i in range(nodes) for hop in hops])


SHAPES: dict[str, Callable[[int], Links]] = {
    "full": full,
    "ring": ring,
    "wheel": wheel,
    "star": star,
    "torus": torus,
    "exponential": exponential,
}


def _from_edges(edges: Sequence[Sequence[int]], nodes: int) -> Links:
    links: Links = nx.DiGraph()
    links.add_nodes_from(range(nodes))
    for edge in edges:
        if len(edge) != 2 or not all(isinstance(end, int) and 0 <= end < nodes for end in edge):
            raise UserError(f"edge {list(edge)}: an edge is [sender, receiver], both from 0 to {nodes - 1}")
        links.add_edge(edge[0], edge[1])
    return links


def checked_graph(shape: GraphSpec) -> str | tuple[tuple[int, int], ...]:
    """The shape in a form that can be compared and hashed; an unknown name is refused here already."""
    if isinstance(shape, str):
        if shape not in SHAPES:
            _parsed_generator(shape)
        return shape
    if any(len(edge) != 2 for edge in shape):
        raise UserError("backbone: an edge is [sender, receiver]")
    return tuple((edge[0], edge[1]) for edge in shape)


def _parsed_generator(call: str) -> tuple[Any, ast.Call]:
    """A networkx generator and its call; ``name`` alone means ``name(n)``."""
    allowed = f"{', '.join(SHAPES)}, or a networkx generator such as random_regular_graph(4, n)"
    try:
        tree = ast.parse(call.strip(), mode="eval").body
    except SyntaxError:
        raise UserError(f"graph is {call!r}; allowed: {allowed}") from None
    tree = tree if isinstance(tree, ast.Call) else ast.Call(tree, [ast.Name("n")], [])
    maker: Any = getattr(nx, tree.func.id, None) if isinstance(tree.func, ast.Name) else None
    if not getattr(maker, "__module__", "").startswith("networkx.generators"):
        raise UserError(f"graph is {call!r}; allowed: {allowed}")
    return maker, tree


def _from_generator(call: str, nodes: int, seed: int) -> AnyGraph:
    """Run one networkx generator; arguments are literals or ``n``: a settings file cannot run code."""
    maker, tree = _parsed_generator(call)
    try:
        arguments = [_literal(value, nodes) for value in tree.args]
        keywords = {str(keyword.arg): _literal(keyword.value, nodes) for keyword in tree.keywords}
        if "seed" in inspect.signature(maker).parameters:
            keywords.setdefault("seed", seed)
        made = maker(*arguments, **keywords)
    except (TypeError, ValueError, nx.NetworkXException) as error:
        raise UserError(f"graph {call!r}: {error}") from None
    if not isinstance(made, nx.Graph):
        raise UserError(f"graph {call!r}: gives no graph")
    return made


def _literal(value: ast.expr, nodes: int) -> Any:
    return nodes if isinstance(value, ast.Name) and value.id == "n" else ast.literal_eval(value)


def _name(shape: GraphSpec | AnyGraph) -> str:
    return repr(shape) if isinstance(shape, str) else "given as edges"


def adjacency(links: Links) -> csr_array:
    """A[i, j] = 1 when i receives from j; no diagonal."""
    ends = np.array(list(links.edges()), dtype=np.intp).reshape(-1, 2)
    return csr_array((np.ones(len(ends)), (ends[:, 1], ends[:, 0])), shape=(len(links),) * 2)


def mixing(
    receives: csr_array, weights: Weights = "auto", present: NDArray[np.bool_] | None = None
) -> csr_array:
    """The mixing matrix W of a graph ``receives[i, j]``; rows sum to 1, an absent node keeps its own row.

    ``equal`` (the paper): w_i <- mean over i and those it receives from.
    ``metropolis``: w_ij = 1 / (1 + max(d_i, d_j)), the rest on the diagonal; two-way links only. It keeps the
    mean where nodes have different numbers of links, which equal weights do not.
    ``auto``: equal on regular graphs and on one-way links, Metropolis-Hastings elsewhere.
    """
    rule = resolve_weights(receives, weights)
    nodes = receives.shape[0]
    if present is not None:
        keep = diags_array(present.astype(np.float64), format="csr")
        receives = csr_array(keep @ receives @ keep)
        receives.eliminate_zeros()
    degree = np.diff(receives.indptr).astype(np.float64)
    if rule == "equal":
        scale = diags_array(1.0 / (degree + 1.0), format="csr")
        return csr_array(scale @ (receives + eye_array(nodes, format="csr")))
    links = receives.tocoo()
    data = 1.0 / (1.0 + np.maximum(degree[links.row], degree[links.col]))
    off = csr_array((data, (links.row, links.col)), shape=receives.shape)
    return csr_array(off + diags_array(1.0 - np.asarray(off.sum(axis=1)).ravel(), format="csr"))


def resolve_weights(receives: csr_array, weights: Weights) -> Literal["equal", "metropolis"]:
    """Decide ``auto`` once for the whole graph, so that a node's absence does not change the rule."""
    two_way = csr_array(receives - receives.T).nnz == 0
    if weights == "metropolis" and not two_way:
        raise UserError('weights = "metropolis": needs two-way links, and this graph has one-way links')
    if weights != "auto":
        return weights
    regular = len(np.unique(np.diff(receives.indptr))) <= 1
    return "metropolis" if two_way and not regular else "equal"
