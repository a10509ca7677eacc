"""Federated learning without a server (Dötzer, Mao et al., Communication Topologies for Decentralized FL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey.core import Method, Round
from covey.group.labels import LabelClusters, Linkage
from covey.mix.exchange import (
    REPRESENTATIVES,
    Exchange,
    Representative,
    clusters_exchange,
    everybody_exchanges,
    note_spread,
    representatives_exchange,
)
from covey.mix.graphs import GraphSpec, Weights
from covey.needs import GROUPS, Facts
from covey.rows import one_per_client, to_owner
from covey.select import Everybody
from covey.settings import validated
from covey.steps import Train


@validated
def decentralized(
    train: Train, *, backbone: GraphSpec = "full", every: int = 1, weights: Weights = "auto"
) -> Method:
    """Every client trains its own model and averages it with those of its neighbours on a graph.

    w_i <- mean of w_j over i and those it receives from, every `every` rounds. `backbone` is full, ring, wheel
    (a one-way rim and two-way diameters), star, torus, exponential, a networkx generator such as
    "random_regular_graph(4, n)", or a list of edges [sender, receiver]. On a full graph it is FedAvg with equal
    weights and everybody.

    Args:
        backbone: full, ring, wheel, star, torus, exponential, a networkx generator, or edges [sender, receiver].
        every: rounds between two exchanges.
        weights: of the neighbours: auto, equal or metropolis.
    """
    exchange = everybody_exchanges(backbone=backbone, every=every, weights=weights)
    return Method(
        name="decentralized",
        select=Everybody(),
        bank=one_per_client,
        send=to_owner,
        local=train,
        mix=exchange,
        after=(note_spread,),
    )


@validated
def hierarchical(
    train: Train,
    *,
    backbone: GraphSpec = "full",
    clusters: int = 10,
    cluster_every: int = 1,
    backbone_every: int = 1,
    cluster_by: Linkage = "dbscan",
    min_samples: int = 3,
    representative: Representative = "samples",
    network: GraphSpec | None = None,
    weights: Weights = "auto",
) -> Method:
    """Clients with like labels form clusters; representatives average their cluster and mix among themselves.

    Every `cluster_every` rounds a representative takes the mean of its cluster, weighted by samples; every
    `backbone_every` rounds the representatives mix on the backbone; then the members replace their models by
    their representative's. In a round with both, models come down once, at the end. The representative is the
    member with most samples, or (`representative = "degree"`) with most links to its cluster in `network`; the
    next one takes over while it is away.

    Args:
        backbone: full, ring, wheel, star, torus, exponential, a networkx generator, or edges [sender, receiver].
        clusters: how many clusters of clients.
        cluster_every: rounds between two means inside the clusters.
        backbone_every: rounds between two exchanges of the representatives.
        cluster_by: how they are found: dbscan (radius by bisection) or agglomerative.
        min_samples: neighbours that make a dense place (DBSCAN).
        representative: who leads a cluster: the member with most samples, or with most links (degree).
        network: with representative = degree: the graph in which links are counted.
        weights: of the neighbours: auto, equal or metropolis.
    """
    exchange = clusters_exchange(
        backbone=backbone,
        cluster_every=cluster_every,
        backbone_every=backbone_every,
        representative=representative,
        network=network,
        weights=weights,
    )
    return Method(
        name="hierarchical",
        group=LabelClusters(clusters=clusters, by=cluster_by, min_samples=min_samples),
        select=Grouped(),
        bank=one_per_client,
        send=to_owner,
        local=train,
        mix=exchange,
        after=(note_spread,),
    )


@validated
def semi_decentralized(
    train: Train,
    *,
    backbone: GraphSpec = "full",
    clusters: int = 10,
    backbone_every: int = 1,
    members_train: bool = False,
    cluster_by: Linkage = "dbscan",
    min_samples: int = 3,
    representative: Representative = "samples",
    network: GraphSpec | None = None,
    weights: Weights = "auto",
) -> Method:
    """Only the clusters' representatives train and mix on the backbone; members take their model.

    No member ever uploads: the fewest messages, right when the clients of a cluster are alike.
    `members_train` lets members train between two downloads, as the authors' code does; what they learn is
    heard by nobody.

    Args:
        backbone: full, ring, wheel, star, torus, exponential, a networkx generator, or edges [sender, receiver].
        clusters: how many clusters of clients.
        backbone_every: rounds between two exchanges of the representatives.
        members_train: whether members train between two downloads, as the authors' code does.
        cluster_by: how they are found: dbscan (radius by bisection) or agglomerative.
        min_samples: neighbours that make a dense place (DBSCAN).
        representative: who leads a cluster: the member with most samples, or with most links (degree).
        network: with representative = degree: the graph in which links are counted.
        weights: of the neighbours: auto, equal or metropolis.
    """
    exchange = representatives_exchange(
        backbone=backbone,
        backbone_every=backbone_every,
        representative=representative,
        network=network,
        weights=weights,
    )
    return Method(
        name="semi-decentralized",
        group=LabelClusters(clusters=clusters, by=cluster_by, min_samples=min_samples),
        select=Grouped() if members_train else Leaders(exchange=exchange),
        bank=one_per_client,
        send=to_owner,
        local=train,
        mix=exchange,
        after=(note_spread,),
    )


@dataclass(frozen=True)
class Grouped:
    """Everybody who is here and belongs to a cluster."""

    needs: ClassVar[Facts] = (GROUPS,)

    def __call__(self, now: Round) -> list[int]:
        return [i for i in now.here if i in now.groups]


@dataclass(frozen=True, kw_only=True)
class Leaders:
    """The representatives of the clusters, among those who are here."""

    exchange: Exchange

    needs: ClassVar[Facts] = (REPRESENTATIVES,)

    def __call__(self, now: Round) -> list[int]:
        return self.exchange.leaders(now)
