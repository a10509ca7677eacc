"""Peers exchange models over a topology: the mix of the decentralised methods, and who represents whom."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import csr_array

from covey.core import GROUPS, MODEL_PER_CLIENT, Fact, Facts, Mixing, Round, Shows, part, stream
from covey.core.shows import A_SERVER, OWN_MODEL
from covey.errors import UserError
from covey.parts.mix.graphs import GraphSpec, Weights, adjacency, checked_graph, graph
from covey.parts.mix.peers import Links, links
from covey.parts.mix.topology import (
    Bools,
    Ints,
    TopologyKind,
    collect,
    download,
    events,
    representatives,
    succession,
)
from covey.parts.mix.topology import round_factors as factors_of_round
from covey.parts.steps.size import sizes
from covey.settings import Count, inline, validated

HashableShape = str | tuple[tuple[int, int], ...]
Representative = Literal["samples", "degree"]

REPRESENTATIVES = Fact("representatives of groups", 'set mix = "hierarchical" or mix = "semi-decentralized"')

MOST_LINKS = 5000  # links kept in the report's note


@validated
class Exchange:
    """Who holds which place, who represents whom, and what is sent in a round.

    Places on a named backbone are dealt at random (the paper); edges are taken literally: node k is the k-th client,
    or cluster k. A client that is away or whose training got lost neither sends nor receives.
    """

    kind: TopologyKind
    backbone: HashableShape
    weights: Weights = "auto"
    cluster_every: Count = 1
    backbone_every: Count = 1
    representative: Representative = "samples"
    network: HashableShape | None = None

    shows: ClassVar[Shows] = OWN_MODEL

    def __post_init__(self) -> None:
        if (self.representative == "degree") != (self.network is not None):
            raise UserError(
                'representative = "degree" and network go together: the degree is a node\'s links in it'
            )

    @property
    def needs(self) -> Facts:
        return (MODEL_PER_CLIENT,) if self.kind == "decentralized" else (MODEL_PER_CLIENT, GROUPS)

    @property
    def gives(self) -> Facts:
        return () if self.kind == "decentralized" else (REPRESENTATIVES,)

    def __call__(self, now: Round) -> list[Mixing]:
        present = self.present(now, lost=set(now.tasks) - {reply.id for reply in now.replies})
        clusters = self.clusters(now)
        order = self.order(now)
        cluster_event, backbone_event = events(
            now.number - 1,
            kind=self.kind,
            cluster_every=self.cluster_every,
            backbone_every=self.backbone_every,
        )
        backbone, place = self.places(now)
        factors = factors_of_round(
            clusters=clusters,
            samples=self.samples(now),
            order=order,
            present=present,
            backbone=backbone,
            place=place,
            weights=self.weights,
            cluster_event=cluster_event,
            backbone_event=backbone_event,
        )
        return over_links(now, factors, clusters, representatives(clusters, order, present), present)

    def leaders(self, now: Round) -> list[int]:
        """The representatives among those who are here."""
        found = representatives(self.clusters(now), self.order(now), self.present(now, lost=set()))
        return sorted(now.seen[node] for node in found.values())

    def present(self, now: Round, *, lost: set[int]) -> Bools:
        """Who participates, by row."""
        here = {i for i in now.here if i not in lost and (self.kind == "decentralized" or i in now.groups)}
        return np.array([i in here for i in now.seen])

    def clusters(self, now: Round) -> Ints:
        """Each row's cluster; in the decentralised form every client of the fleet is its own, by number."""
        if self.kind == "decentralized":
            own = {client: k for k, client in enumerate(now.fleet.members())}
            return np.array([own.get(i, -1) for i in now.seen])
        return np.array([now.groups.get(i, -1) for i in now.seen])

    def places(self, now: Round) -> tuple[csr_array, Ints]:
        """The backbone, and the place of each cluster on it."""
        if self.kind == "decentralized":
            owners: Sequence[int] = now.fleet.members()
        else:
            owners = range(max(now.groups.values(), default=0) + 1)
        backbone = _links(self.backbone, len(owners), now.fleet.seed)
        if not isinstance(self.backbone, str):
            return backbone, np.arange(len(owners))
        # A client's draw depends on no other client, so the others keep their order when one joins.
        hat = stream(now.fleet.seed, "places").random(max(owners) + 1)[list(owners)]
        return backbone, np.argsort(np.argsort(hat))

    def samples(self, now: Round) -> list[int]:
        """Training samples by row; 1 where they are not known, and where every client stands for itself."""
        known = {} if self.kind == "decentralized" else sizes(now, [i for i in now.here if i in now.groups])
        return [known.get(i, 1) for i in now.seen]

    def order(self, now: Round) -> Ints:
        """The succession of representatives, by row."""
        if self.network is None:
            return succession(self.samples(now))
        clusters = self.clusters(now)
        cluster_of = dict(zip(now.seen, clusters.tolist(), strict=True))
        everybody = now.fleet.members()
        inside: dict[int, int] = {}
        entries = _links(self.network, len(everybody), now.fleet.seed).tocoo()
        for receiver, sender in zip(entries.row.tolist(), entries.col.tolist(), strict=True):
            ends = everybody[receiver], everybody[sender]
            if cluster_of.get(ends[0], -1) == cluster_of.get(ends[1], -2):
                inside[ends[0]] = inside.get(ends[0], 0) + 1
        return succession(self.samples(now), [inside.get(i, 0) for i in now.seen])


@part("mix", "decentralized")
def everybody_exchanges(
    *, backbone: GraphSpec = "full", every: Count = 1, weights: Weights = "auto"
) -> Exchange:
    """Every client averages its model with those of its neighbours on a graph.

    Args:
        backbone: full, ring, wheel, star, torus, exponential, a networkx generator, or edges [sender, receiver].
        every: rounds between two exchanges.
        weights: of the neighbours: auto, equal or metropolis.
    """
    return Exchange(
        kind="decentralized", backbone=checked_graph(backbone), backbone_every=every, weights=weights
    )


@part("mix", "semi-decentralized")
def representatives_exchange(
    *,
    backbone: GraphSpec = "full",
    backbone_every: Count = 1,
    representative: Representative = "samples",
    network: GraphSpec | None = None,
    weights: Weights = "auto",
) -> Exchange:
    """Representatives mix their own models on a graph and send the result down; members are not heard.

    Args:
        backbone: full, ring, wheel, star, torus, exponential, a networkx generator, or edges [sender, receiver].
        backbone_every: rounds between two exchanges of the representatives.
        representative: who leads a cluster: the member with most samples, or with most links (degree).
        network: with representative = degree: the graph in which links are counted.
        weights: of the neighbours: auto, equal or metropolis.
    """
    return Exchange(
        kind="semi-decentralized",
        backbone=checked_graph(backbone),
        backbone_every=backbone_every,
        weights=weights,
        representative=representative,
        network=None if network is None else checked_graph(network),
    )


@part("mix", "hierarchical")
def clusters_exchange(
    *, cluster_every: Count = 1, among: Exchange = inline(representatives_exchange)
) -> Exchange:
    """Representatives average their cluster, mix among themselves on a graph, and send the result down.

    Args:
        cluster_every: rounds between two means inside the clusters.
    """
    return replace(among, kind="hierarchical", cluster_every=cluster_every)


@lru_cache(maxsize=8)
def _links(shape: HashableShape, nodes: int, seed: int) -> csr_array:
    return adjacency(graph(shape, nodes, seed=seed))


def over_links(
    now: Round, factors: Sequence[csr_array], groups: Ints, lead: Mapping[int, int], present: Bools
) -> list[Mixing]:
    """What the factors make of the replies and the old rows, noted for the report.

    Statistics are not mixed: a client that trained keeps its own, one that did not takes those of its representative.
    """
    row_of = {client: row for row, client in enumerate(now.seen)}
    rows, layout = [row_of[reply.id] for reply in now.replies], now.fleet.layout
    first = collect(len(now.seen), rows)
    mixings = [Mixing(factors=[first, *factors], peers=True)]
    if layout.has_buffers and layout.buffers != "average":
        idle = present.copy()
        idle[rows] = False
        down = [download(groups, lead, idle)] if factors else []
        mixings = [
            replace(mixings[0], columns=slice(0, layout.trainable)),
            Mixing(factors=[first, *down], columns=slice(layout.trainable, None)),
        ]
    now.notes["graph"] = graph_note(now, groups, lead, links(mixings[0], now.seen, now.replies))
    return mixings


def graph_note(now: Round, clusters: Ints, lead: Mapping[int, int], sent: Links) -> dict[str, Any]:
    """For the report: the nodes, and how many models each link has carried so far (at most MOST_LINKS links)."""
    before = now.notes.get("graph", {}).get("edges", [])
    total = {(edge["from"], edge["to"]): edge["load"] for edge in before}
    fresh = [part[:MOST_LINKS].tolist() for part in sent]
    for sender, receiver, rows in zip(*fresh, strict=True):
        if (sender, receiver) in total or len(total) < MOST_LINKS:
            total[sender, receiver] = total.get((sender, receiver), 0) + rows
    heads = set(lead.values()) if len(lead) < len(now.seen) else set()
    return {
        "nodes": [
            {"id": i, "group": int(cluster), "head": row in heads}
            for row, (i, cluster) in enumerate(zip(now.seen, clusters.tolist(), strict=True))
        ],
        "edges": [{"from": a, "to": b, "load": load} for (a, b), load in sorted(total.items())],
    }


@part("after", "spread", shows=Shows(what="every client's own model", instead=A_SERVER))
def note_spread(now: Round) -> None:
    """For the report: the standard deviation of the nodes' parameters from their mean, by round."""
    parameters = now.models[:, : now.fleet.layout.trainable]
    mean = parameters.mean(dim=0)
    # row by row: `var` over the rows takes more than four times as long
    squares = [float(torch.dot(apart := row - mean, apart)) for row in parameters]
    value = math.sqrt(math.fsum(squares) / max(1, parameters.numel()))
    before = now.notes.get("spread", {"round": [], "value": []})
    now.notes["spread"] = {
        "round": [*before["round"], now.number],
        "value": [*before["value"], value],
    }
