"""FedDrift: federated learning under distributed concept drift (Jothimurugesan et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Client, Method, Reply, Round, Step, Task
from covey.methods.grouped import fedavg_per_group
from covey.needs import GROUPS, MODEL_PER_GROUP, Facts, Key, declares
from covey.ranges import Positive
from covey.settings import validated
from covey.statistics import Known, Stat
from covey.steps.evaluate import FORWARD_SHARE
from covey.steps.train import Train

Array = NDArray[np.float64]
LAST: Key[dict[int, float]] = Key("feddrift.losses")  # of every client's own model, when it was last asked
MERGED: Key[list[tuple[int, int]]] = Key("feddrift.merged")  # in this round: (kept, given up)


@dataclass(frozen=True, kw_only=True)
class TellLosses(Step):
    """Asks for the mean loss of every sent model on the client's training data."""

    kind: ClassVar[str] = "query.losses"

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

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return FORWARD_SHARE * train


def cluster_distances(losses: Array) -> Array:
    """max(L_ij - L_ii, L_ji - L_jj, 0), L_ij the loss of model i on the data of group j's clients."""
    excess = losses - np.diag(losses)[:, None]
    return np.asarray(np.maximum(np.maximum(excess, excess.T), 0))


@validated
@dataclass(frozen=True, kw_only=True)
class ByDrift:
    """Clients use the model with the lowest loss on their data; who loses more than `delta` on all of them has drifted.

    The drifted clients of a round get a new model (FedDrift-Eager). Two groups become one when neither one's model
    loses more than `delta` on the other's data.

    Args:
        delta: how much the loss must rise for a drift, and may differ between groups that become one.
    """

    delta: Positive = 0.5

    needs: ClassVar[Facts] = (MODEL_PER_GROUP,)
    gives: ClassVar[Facts] = (GROUPS,)

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
        for client, values in losses.items():
            best = alive[int(np.argmin(values[alive]))]
            drifted = client in last and values[best] > last[client] + self.delta
            groups[client] = len(models) if drifted else best
            last[client] = float(values[best])
        LAST.keep(now.memory, {i: value for i, value in last.items() if groups.get(i) != len(models)})
        return self.merged(now, groups, losses, alive)

    def merged(
        self, now: Round, groups: dict[int, int], losses: dict[int, Array], alive: list[int]
    ) -> dict[int, int]:
        """The groups after those became one that do not differ; which ones is left for the bank."""
        there = [g for g in alive if any(groups.get(i) == g for i in losses)]
        table = np.array(
            [[np.mean([losses[i][a] for i in losses if groups[i] == b]) for b in there] for a in there]
        )
        merged: list[tuple[int, int]] = []
        far = cluster_distances(table) if len(there) > 1 else np.zeros((0, 0))
        for a in range(len(far)):
            for b in range(a + 1, len(far)):
                gone = {given for _, given in merged}
                if far[a, b] < self.delta and there[a] not in gone and there[b] not in gone:
                    merged.append((there[a], there[b]))
                    groups = {i: there[a] if g == there[b] else g for i, g in groups.items()}
        MERGED.keep(now.memory, merged)
        return groups


@declares(needs=(GROUPS,), gives=(MODEL_PER_GROUP,))
def models_of_drift(now: Round) -> Tensor:
    """A model for every group ever found: those that became one are averaged, a new one is drawn anew."""
    rows = now.models.clone() if len(now.models) else now.fleet.start()[None]
    for kept, given in MERGED.get(now.memory, []):
        rows[kept] = (rows[kept] + rows[given]) / 2
    new = [now.fleet.start(n) for n in range(len(rows), max(now.groups.values(), default=0) + 1)]
    return torch.cat([rows, torch.stack(new)]) if new else rows


@validated
def feddrift(train: Train, *, per_round: int = 10, delta: Positive = 0.5) -> Method:
    """One model per concept, found while concepts change: who loses more than before on all models gets a new one.

    Every round all clients tell every model's loss on their data and use the best. If that is more than `delta` above
    their last, they have drifted and train a new model; groups whose models do as well on each other's data become one
    (Jothimurugesan et al., 2023, FedDrift-Eager with merging).

    Args:
        per_round: how many clients work in a round.
        delta: how much the loss must rise for a drift, and may differ between groups that become one.
    """
    return fedavg_per_group(
        "feddrift", train, ByDrift(delta=delta), per_round=per_round, bank=models_of_drift
    )
