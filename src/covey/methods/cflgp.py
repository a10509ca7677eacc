"""CFL-GP: clustered federated learning via gradient-based partitioning (Kim, Kim and de Veciana, 2024)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from covey.core import Client, Key, Known, Method, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.needs import GROUPS, MODEL_PER_GROUP
from covey.core.reply_schema import Stat
from covey.core.shows import ANY_GROUPS, NOTHING
from covey.methods.grouped import fedavg_per_group
from covey.parts.banks import one_per_parent
from covey.parts.group.reports import k_groups
from covey.parts.selection.clustered_sampling import count_sketch
from covey.parts.steps.stepwise import LocalBatches
from covey.parts.steps.train import Train, best_row
from covey.settings import Count, inline

SKETCH = 256  # length of the sketch of a gradient: random signs keep inner products up to noise
SUMS: Key[dict[int, NDArray[Any]]] = Key("cflgp.gradients")


@step(kind="query.gradient", of_labels=True, passes=1.0)
class TellGradient(Step):
    """Asks for the gradient of all the client's data at the sent model, of length 1, folded to a few numbers."""

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = best_row(client, task)
        whole = LocalBatches.of(Train(epochs=1, lr=1.0), client)
        gradient = whole.gradient(row, whole.everything()).double().numpy()
        sketch = folded(gradient / max(float(np.linalg.norm(gradient)), 1e-12))
        return Reply(id=client.id, slot=slot, size=len(client.train), stats={"gradient": sketch})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {"gradient": Stat(low=-SKETCH, high=SKETCH, shape=(SKETCH,))}


def folded(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """A count sketch, with the same places and signs for all clients."""
    return count_sketch(vector, SKETCH, np.random.default_rng(len(vector)))


def spectral_groups(features: NDArray[np.float64], k: int, seed: int) -> NDArray[np.int64]:
    """K-means on the first k left singular vectors of the features, each row of length 1."""
    u, s, _ = np.linalg.svd(features, full_matrices=False)
    points = u[:, :k] * s[:k]
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    return k_groups(points, k, seed)


def as_before(new: NDArray[np.int64], old: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The new groups under those numbers that agree best with the old ones (-1: had none)."""
    table = np.zeros((k, k))
    for a, b in zip(new, old, strict=True):
        table[a, b] += b >= 0
    _, names = linear_sum_assignment(-table)
    return np.asarray(names[new], np.int64)


@part("group", "gradients", gives=(GROUPS,))
class ByGradients:
    """Groups by gradients that all clients compute for the same models, added up over some rounds (CFL-GP).

    After round `until` only unseen clients are asked, and join the nearest group.

    Args:
        k: how many groups.
        period: rounds between two clusterings.
        until: the last round in which groups are made anew.
    """

    k: Count = 4
    period: Count = 1
    until: Count = 10

    shows: ClassVar[Shows] = Shows(what="every client's own gradient", instead=ANY_GROUPS)

    def __call__(self, now: Round) -> dict[int, int]:
        sums = dict(SUMS.get(now.memory, {}))
        due = now.number <= self.until and (now.number - 1) % self.period == 0
        asked = [i for i in now.here if due or i not in sums]
        if not asked:
            return now.groups
        if len(now.models):
            turn = (now.number - 1) // self.period % len(now.models)
            model = now.models[turn : turn + 1]
        else:
            model = now.fleet.start()[None]
        told = now.fleet.ask(TellGradient(), dict.fromkeys(asked, Task(models=model, slots=(0,))))
        for reply in told:
            sums[reply.id] = sums.get(reply.id, 0.0) + np.asarray(reply.stats["gradient"])
        SUMS.keep(now.memory, sums)
        ids = sorted(sums)
        features = np.stack([sums[i] / max(float(np.linalg.norm(sums[i])), 1e-12) for i in ids])
        if not due:
            return now.groups | {i: self.nearest(now, ids, features, i) for i in ids if i not in now.groups}
        labels = spectral_groups(features, self.k, int(now.stream("k-means").integers(2**31)))
        old = np.array([now.groups.get(i, -1) for i in ids])
        return dict(zip(ids, as_before(labels, old, self.k).tolist(), strict=True))

    def nearest(self, now: Round, ids: list[int], features: NDArray[np.float64], client: int) -> int:
        """The group whose members' gradients point most in the client's direction."""
        place = {i: at for at, i in enumerate(ids)}
        likeness: dict[int, list[float]] = {}
        for other, group in now.groups.items():
            likeness.setdefault(group, []).append(float(features[place[other]] @ features[place[client]]))
        return max(sorted(likeness), key=lambda group: np.mean(likeness[group]), default=0)


@part("bank", "equal-starts", needs=(GROUPS,), gives=(MODEL_PER_GROUP,), shows=NOTHING)
class EqualStarts:
    """k models, or one per group where there are more, all starting as the given one; only who trains them differs."""

    k: Count = 4

    def __call__(self, now: Round) -> Tensor:
        return one_per_parent(now, range(max(self.k, max(now.groups.values(), default=-1) + 1)))


@method("cfl-gp", family="clusters")
def cfl_gp(
    train: Train,
    *,
    per_round: Count = 10,
    bank: EqualStarts = inline(EqualStarts),
    group: ByGradients = inline(ByGradients),
) -> Method:
    """Clients whose gradients for the same models point the same way train one model together.

    Every `period` rounds all clients tell their gradient for one of the models in turn (as a sketch); the sums over all
    rounds so far are clustered by their first `k` singular vectors (Kim et al., 2024), until round `until`.
    """
    return fedavg_per_group("cfl-gp", train, group, per_round=per_round, bank=bank)
