"""Over which links a cluster's models travel when there is no server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import block_diag, csr_array

from covey.core import GROUPS, MODEL_PER_CLIENT, Facts, Key, Mixing, Round, Task, stream
from covey.parts.mix.exchange import HashableShape, over_links
from covey.parts.mix.graphs import adjacency, graph
from covey.parts.mix.topology import (
    Ints,
    between,
    download,
    messages,
    representatives,
    succession,
    upload,
)
from covey.parts.steps.size import sizes

# client -> the last round in which it took the present model
REFRESHED: Key[dict[int, int]] = Key("refreshed")
Finer = Callable[[Round], Mapping[int, int]]  # the groups inside clusters: client -> group


@dataclass(frozen=True, kw_only=True)
class ClusterTopology:
    """The mix: each cluster's groups (as `finer` names them) stand on a graph of their own, dealt at random.

    The representative of a group is, among those who are here and hold its latest model, the member with most samples;
    only those who trained are heard.
    """

    backbone: HashableShape
    finer: Finer

    needs: ClassVar[Facts] = (MODEL_PER_CLIENT, GROUPS)

    def __call__(self, now: Round) -> list[Mixing]:
        places = self.places(now)
        row_of = {client: row for row, client in enumerate(now.seen)}
        worked = np.zeros(len(now.seen), bool)
        worked[[row_of[reply.id] for reply in now.replies]] = True
        heard = {
            group: node for group, node in places.lead.items() if (worked & (places.groups == group)).any()
        }
        factors = [
            upload(places.groups, heard, places.samples, worked),
            between(places.lead, places.backbone, np.arange(len(places.cluster)), "auto", len(now.seen)),
            download(places.groups, places.lead, places.here),
        ]
        taken = {client: now.number for client, is_here in zip(now.seen, places.here, strict=True) if is_here}
        REFRESHED.keep(now.memory, REFRESHED.get(now.memory, {}) | taken)
        factors = [factor for factor in factors if messages(factor)]
        return over_links(now, factors, places.groups, places.lead, places.here)

    def places(self, now: Round) -> Places:
        """Who is in which group, who represents it, and which groups are linked."""
        finer = self.finer(now)
        names = sorted(set(finer.values()))
        number = {name: place for place, name in enumerate(names)}
        groups = np.array([number.get(finer.get(i, -1), -1) for i in now.seen])
        cluster_of = {number[name]: now.groups[i] for i, name in finer.items()}
        known = sizes(now, [i for i in now.here if i in finer])
        samples = [known.get(i, 1) for i in now.seen]
        here = np.array([i in set(now.here) and i in finer for i in now.seen])
        cluster = np.array([cluster_of[place] for place in range(len(names))])
        latest = REFRESHED.get(now.memory, {})
        order = succession(samples, [latest.get(i, 0) for i in now.seen])
        return Places(
            groups=groups,
            cluster=cluster,
            samples=samples,
            here=here,
            lead=representatives(groups, order, here),
            backbone=self.linked(cluster, now.fleet.seed),
        )

    def linked(self, cluster: Ints, seed: int) -> csr_array:
        """A graph for every cluster; its groups' places on it are dealt at random."""
        joined = block_diag(
            [
                adjacency(graph(self.backbone, int((cluster == one).sum()), seed=seed))
                for one in np.unique(cluster)
            ],
            format="csr",
        )
        # the k-th place of the joined graph belongs to this group: cluster by cluster, inside each as drawn
        hat = stream(seed, "places").random(len(cluster))
        order = np.lexsort((hat, cluster))
        place = np.argsort(order)
        return csr_array(joined[place][:, place])


@dataclass(frozen=True, kw_only=True, eq=False)
class Places:
    """Rows by group, groups by cluster, and who stands for each group."""

    groups: Ints  # of every row; -1: not known
    cluster: Ints  # of every group
    samples: Sequence[int]
    here: np.ndarray
    lead: dict[int, int]  # group -> row
    backbone: csr_array


@dataclass(frozen=True, kw_only=True)
class FromRepresentative:
    """Everybody works on the model that it holds; who holds an old one (an unseen client, who was away) is sent the
    present one by its representative first."""

    mix: ClusterTopology

    needs: ClassVar[Facts] = (MODEL_PER_CLIENT, GROUPS)

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        places = self.mix.places(now)
        tasks = {}
        for i in ids:
            row = now.seen.index(i) if i in now.seen else -1
            group = int(places.groups[row]) if row >= 0 else -1
            if group < 0:
                continue
            source = places.lead.get(group, row)
            is_held = torch.equal(now.models[row], now.models[source])
            tasks[i] = Task(
                models=now.models[source : source + 1],
                slots=(row,),
                held=(0,) if is_held else (),
                keep=True,
                source="peers",
            )
        return tasks
