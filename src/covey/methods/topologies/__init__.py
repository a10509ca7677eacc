"""Federated learning without a server (Dötzer, Mao et al., Communication Topologies for Decentralized FL)."""

from covey.core import GROUPS, NOTHING, Group, Method, Round, Select, method, part
from covey.methods.topologies.labels import LabelClusters, Linkage
from covey.parts.banks import one_per_client, to_owner
from covey.parts.mix.exchange import (
    REPRESENTATIVES,
    Exchange,
    clusters_exchange,
    everybody_exchanges,
    note_spread,
    representatives_exchange,
)
from covey.parts.selection.plain import Everybody
from covey.parts.steps.train import Train
from covey.settings import Count, inline, validated


@method("decentralized", family="topology")
def decentralized(train: Train, *, exchange: Exchange = inline(everybody_exchanges)) -> Method:
    """Every client trains its own model and averages it with those of its neighbours on a graph.

    w_i <- mean of w_j over i and those it receives from, every `every` rounds. `backbone` is full, ring, wheel
    (a one-way rim and two-way diameters), star, torus, exponential, a networkx generator such as
    "random_regular_graph(4, n)", or a list of edges [sender, receiver]. On a full graph it is FedAvg with equal
    weights and everybody.
    """
    return over_topology("decentralized", train, exchange, select=Everybody())


@validated
def label_clusters(
    *, clusters: Count = 10, cluster_by: Linkage = "dbscan", min_samples: Count = 3
) -> LabelClusters:
    """Clusters of clients with similar labels.

    Args:
        clusters: how many clusters of clients.
        cluster_by: how they are found: dbscan (radius by bisection) or agglomerative.
        min_samples: neighbours that make a dense place (DBSCAN).
    """
    return LabelClusters(clusters=clusters, by=cluster_by, min_samples=min_samples)


@method("hierarchical", family="topology")
def hierarchical(
    train: Train,
    *,
    group: LabelClusters = inline(label_clusters),
    exchange: Exchange = inline(clusters_exchange),
) -> Method:
    """Clients with similar labels form clusters; representatives average their cluster and mix among themselves.

    Every `cluster_every` rounds a representative takes the mean of its cluster, weighted by samples; every
    `backbone_every` rounds the representatives mix on the backbone; then the members replace their models by
    their representative's. In a round with both, models come down once, at the end. The representative is the
    member with most samples, or (`representative = "degree"`) with most links to its cluster in `network`; the
    next one takes over while it is away.
    """
    return over_topology("hierarchical", train, exchange, group=group, select=Grouped())


@method("semi-decentralized", family="topology")
def semi_decentralized(
    train: Train,
    *,
    members_train: bool = False,
    group: LabelClusters = inline(label_clusters),
    exchange: Exchange = inline(representatives_exchange),
) -> Method:
    """Only the clusters' representatives train and mix on the backbone; members take their model.

    No member ever uploads: the fewest messages, right when the clients of a cluster are alike.
    `members_train` lets members train between two downloads, as the authors' code does; what they learn is
    heard by nobody.

    Args:
        members_train: whether members train between two downloads, as the authors' code does.
    """
    select = Grouped() if members_train else Leaders(exchange=exchange)
    return over_topology("semi-decentralized", train, exchange, group=group, select=select)


def over_topology(
    name: str, train: Train, exchange: Exchange, *, select: Select, group: Group | None = None
) -> Method:
    """Everybody trains a model of its own; models travel between peers, never to a server."""
    return Method(
        name=name,
        group=group,
        select=select,
        bank=one_per_client,
        send=to_owner,
        local=train,
        mix=exchange,
        after=(note_spread,),
    )


@part("select", "grouped", needs=(GROUPS,), shows=NOTHING)
class Grouped:
    """Everybody who is here and belongs to a cluster."""

    def __call__(self, now: Round) -> list[int]:
        return [i for i in now.here if i in now.groups]


@part("select", "representatives", needs=(REPRESENTATIVES,), shows=NOTHING)
class Leaders:
    """The representatives of the clusters, among those who are here."""

    exchange: Exchange

    def __call__(self, now: Round) -> list[int]:
        return self.exchange.leaders(now)
