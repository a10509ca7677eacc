"""Cluster topologies (Dötzer, Mao et al.) as products of sparse matrices: what travels in one round, and to whom.

A round is up to three factors on the n models: *upload* (a representative averages its cluster), *backbone*
(representatives mix) and *download* (members take their representative's model). Decentralised is the case
where everybody represents only itself. A model sent over a link is one off-diagonal non-zero, so the messages
can be counted in the factors.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from covey.parts.mix.graphs import Weights, mixing, resolve_weights

TopologyKind = Literal["decentralized", "hierarchical", "semi-decentralized"]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


def events(round: int, *, kind: TopologyKind, cluster_every: int, backbone_every: int) -> tuple[bool, bool]:
    """Whether clusters and whether the backbone communicate in a round (the first is round 0).

    The backbone starts in round 0; clusters start in round 1, unless they communicate in every round. So
    equal periods of 2 alternate, as the counts of the paper's Table I require.
    """
    phase = 1 if cluster_every > 1 else 0
    return kind == "hierarchical" and round % cluster_every == phase, round % backbone_every == 0


def succession(samples: Sequence[int], degree: Sequence[int] | None = None) -> Ints:
    """All nodes, the fittest representative first: most links inside its cluster if `degree` is given, then
    most samples, then the smaller number."""
    first = np.zeros(len(samples)) if degree is None else np.asarray(degree)
    return np.lexsort((np.arange(len(samples)), -np.asarray(samples), -first))


def representatives(clusters: Ints, order: Ints, present: Bools) -> dict[int, int]:
    """Cluster -> its representative, the first of the succession that is present; none if all are away."""
    found: dict[int, int] = {}
    for node in order.tolist():
        if present[node]:
            found.setdefault(int(clusters[node]), node)
    return dict(sorted(found.items()))


def round_factors(
    *,
    clusters: Ints,
    samples: Sequence[int],
    order: Ints,
    present: Bools,
    backbone: csr_array,
    place: Ints,
    weights: Weights = "auto",
    cluster_event: bool,
    backbone_event: bool,
) -> list[csr_array]:
    """The n x n factors of one round, first one first; none when nobody communicates.

    `backbone[i, j]` is a graph on the places 0..C-1 and cluster c stands on ``place[c]``. If both events fall
    in one round, models come down once, after the backbone (upload, backbone, download).
    """
    lead = representatives(clusters, order, present)
    factors = []
    if cluster_event:
        factors.append(upload(clusters, lead, samples, present))
    if backbone_event:
        factors.append(between(lead, backbone, place, weights, len(clusters)))
    if factors:
        factors.append(download(clusters, lead, present))
    return [factor for factor in factors if messages(factor)]


def upload(clusters: Ints, lead: dict[int, int], samples: Sequence[int], present: Bools) -> csr_array:
    """Each representative takes the mean of its cluster, weighted by samples: sum n_j w_j / sum n_j."""
    size = np.asarray(samples, dtype=np.float64)
    rows = {}
    for cluster, node in lead.items():
        members = np.flatnonzero((clusters == cluster) & present)
        rows[node] = (members, size[members] / size[members].sum())
    return _identity_but(len(clusters), rows)


def between(
    lead: dict[int, int], backbone: csr_array, place: Ints, weights: Weights, nodes: int
) -> csr_array:
    """Representatives mix on the backbone; a cluster with nobody present is left out of it."""
    rule = resolve_weights(backbone, weights)
    active = np.zeros(backbone.shape[0], dtype=np.bool_)
    node_at = np.zeros(backbone.shape[0], dtype=np.intp)
    for cluster, node in lead.items():
        active[place[cluster]] = True
        node_at[place[cluster]] = node
    mixed = mixing(backbone, rule, active)
    rows = {}
    for cluster, node in lead.items():
        start, stop = mixed.indptr[place[cluster]], mixed.indptr[place[cluster] + 1]
        rows[node] = (node_at[mixed.indices[start:stop]], mixed.data[start:stop])
    return _identity_but(nodes, rows)


def download(clusters: Ints, lead: Mapping[int, int], present: Bools) -> csr_array:
    """Every member that is present replaces its model by its representative's."""
    column = np.arange(len(clusters))
    column[present] = [lead[cluster] for cluster in clusters[present].tolist()]
    return _picked(column, len(clusters))


def collect(nodes: int, replied: Sequence[int]) -> csr_array:
    """The first factor, ``[old rows; replies] -> n rows``: a node's reply if any, else its old row."""
    column = np.arange(nodes)
    column[list(replied)] = nodes + np.arange(len(replied))
    return _picked(column, nodes + len(replied))


def _picked(column: Ints, width: int) -> csr_array:
    """One entry in each row, a 1 in this column."""
    nodes = len(column)
    return csr_array((np.ones(nodes), column, np.arange(nodes + 1)), shape=(nodes, width))


def messages(factor: csr_array) -> int:
    """One message is one model over one link: the off-diagonal non-zeros of an n x n factor."""
    entries = factor.tocoo()
    return int(np.count_nonzero((entries.row != entries.col) & (entries.data != 0)))


def _identity_but(nodes: int, rows: Mapping[int, tuple[Ints, NDArray[np.float64]]]) -> csr_array:
    """An identity matrix in which some rows are replaced by (columns, weights)."""
    kept = [rows.get(i, (np.array([i]), np.ones(1))) for i in range(nodes)]
    indptr = np.cumsum([0, *(len(columns) for columns, _ in kept)])
    columns = np.concatenate([columns for columns, _ in kept])
    data = np.concatenate([data for _, data in kept])
    made = csr_array((data, columns, indptr), shape=(nodes, nodes))
    made.sort_indices()
    return made
