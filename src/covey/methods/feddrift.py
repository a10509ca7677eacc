"""FedDrift: federated learning under distributed concept drift (Jothimurugesan et al., 2023)."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import Client, Key, Known, Method, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.needs import GROUPS, MODEL_PER_GROUP
from covey.core.reply_schema import Stat
from covey.core.shows import ANY_GROUPS, NOTHING
from covey.methods.grouped import fedavg_per_group
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import Train
from covey.settings import Count, Positive, inline

LAST: Key[dict[int, float]] = Key("feddrift.losses")  # of every client's own model, when it was last asked
# in this round: a group, the one that it takes in, and the share of the latter's clients in both
MERGED: Key[list[tuple[int, int, float]]] = Key("feddrift.merged")
ORIGIN: Key[int] = Key("feddrift.origin")  # the model that a new one of this round starts from


@step(kind="query.losses", of_labels=True, passes=FORWARD_SHARE)
class TellLosses(Step):
    """Asks for the mean loss of every sent model on the client's training data."""

    def __call__(self, client: Client, task: Task) -> Reply:
        x, y = client.train.tensors()
        target = client.bench.objective.target(x, y)
        losses = [
            float(client.bench.objective.scores(client.bench.forward(row, x), target)["loss"].double().mean())
            for row in task.models
        ]
        return Reply(id=client.id, slot=task.slots[0], size=len(y), stats={"losses": np.array(losses)})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {"losses": Stat(low=known.lowest_loss, shape=(known.models,))}


def cluster_distances(losses: Array) -> Array:
    """max(L_ij - L_ii, L_ji - L_jj, 0), L_ij the loss of model i on the data of group j's clients."""
    excess = losses - np.diag(losses)[:, None]
    return np.asarray(np.maximum(np.maximum(excess, excess.T), 0))


def joined(distances: Array, delta: float) -> list[list[int]]:
    """Clusters by complete linkage: no two members of one are further apart than delta."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    names = fcluster(linkage(squareform(distances), method="complete"), t=delta, criterion="distance")
    return [np.flatnonzero(names == name).tolist() for name in dict.fromkeys(names.tolist())]


@part("group", "drift", needs=(MODEL_PER_GROUP,), gives=(GROUPS,))
class ByDrift:
    """Clients use the model with the lowest loss on their data; one that loses over `delta` on all of them has drifted.

    The drifted clients of a round get a new model (FedDrift-Eager). Groups become one, by complete linkage, when no
    one's model loses more than `delta` on another's data.

    Args:
        delta: how much the loss must rise for a drift, and may differ between groups that become one.
    """

    delta: Positive = 0.5

    shows: ClassVar[Shows] = Shows(what="every client's exact losses of all models", instead=ANY_GROUPS)

    def __call__(self, now: Round) -> dict[int, int]:
        models = now.models if len(now.models) else now.fleet.start()[None]
        task = Task(models=models, slots=tuple(range(len(models))))
        told = now.fleet.ask(TellLosses(), dict.fromkeys(now.here, task))
        losses = {
            reply.id: np.asarray(reply.stats["losses"], float)
            for reply in told
            if len(reply.stats["losses"]) == len(models)
        }
        alive = sorted(set(now.groups.values())) or [0]
        last, groups = dict(LAST.get(now.memory, {})), dict(now.groups)
        left: list[int] = []  # the models that were best for those who drifted
        for client, values in losses.items():
            best = alive[int(np.argmin(values[alive]))]
            drifted = client in last and values[best] > last[client] + self.delta
            groups[client] = len(models) if drifted else best
            last[client] = float(values[best])
            left += [best] if drifted else []
        ORIGIN.keep(now.memory, int(np.bincount(left).argmax()) if left else 0)
        LAST.keep(now.memory, {i: value for i, value in last.items() if groups.get(i) != len(models)})
        return self.merged(now, groups, losses, alive)

    def merged(
        self, now: Round, groups: dict[int, int], losses: dict[int, Array], alive: list[int]
    ) -> dict[int, int]:
        """The groups after merging those that do not differ; which ones is noted for the bank."""
        there = [g for g in alive if any(groups.get(i) == g for i in losses)]
        table = np.array(
            [[np.mean([losses[i][a] for i in losses if groups[i] == b]) for b in there] for a in there]
        )
        merged: list[tuple[int, int, float]] = []
        for alike in joined(cluster_distances(table), self.delta) if len(there) > 1 else []:
            kept, *others = (there[place] for place in alike)
            for given in others:
                sizes = [sum(g == one for g in groups.values()) for one in (kept, given)]
                merged.append((kept, given, sizes[1] / sum(sizes)))
                groups = {i: kept if g == given else g for i, g in groups.items()}
        MERGED.keep(now.memory, merged)
        return groups


@part("bank", "of-drift", shows=NOTHING, needs=(GROUPS,), gives=(MODEL_PER_GROUP,))
def models_of_drift(now: Round) -> Tensor:
    """A model for every group ever found: those that became one are averaged by their clients.

    A new model starts from the one that was the best for most of those who drifted, as in the authors' code.
    """
    rows = now.models.clone() if len(now.models) else now.fleet.start()[None]
    start = rows[ORIGIN.get(now.memory, 0)].clone()
    for kept, given, share in MERGED.get(now.memory, []):
        rows[kept] = torch.lerp(rows[kept], rows[given], share)
    missing = max(now.groups.values(), default=0) + 1 - len(rows)
    return torch.cat([rows, start.expand(missing, -1)]) if missing > 0 else rows


@method("feddrift", family="clusters", paper="https://arxiv.org/abs/2206.00799")
def feddrift(train: Train, *, per_round: Count = 10, group: ByDrift = inline(ByDrift)) -> Method:
    """One model per concept, found while concepts change: who loses more than before on all models gets a new one.

    Every round all clients tell every model's loss on their data and use the best. If that is more than `delta` above
    their last, they have drifted and train a new model; groups whose models do as well on each other's data become one
    (Jothimurugesan et al., 2023, FedDrift-Eager with merging).
    """
    return fedavg_per_group("feddrift", train, group, per_round=per_round, bank=models_of_drift)
