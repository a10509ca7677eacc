"""FLUX: descriptor-driven clustered federated learning, also for clients without labels (Fenoglio et al., 2025)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array, Labels
from covey.core import Client, Key, Known, Method, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.needs import GROUPS, MODEL_PER_GROUP
from covey.core.reply_schema import Stat
from covey.core.shows import ANY_GROUPS, NOTHING
from covey.methods.grouped import fedavg_per_group
from covey.parts.banks import one_per_parent
from covey.parts.group.density import Density
from covey.parts.group.reports import Reports, cut_tree, grouped_by_reports
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.latents import representations
from covey.parts.steps.train import Train
from covey.settings import Count, inline

MOMENTS: Key[dict[int, NDArray[Any]]] = Key("flux.moments")
DESCRIBED_BY: Key[Tensor] = Key("flux.model")


@step(kind="query.moments", passes=FORWARD_SHARE)
class TellMoments(Step):
    """Asks for moments of the client's data as the sent model represents them, in `dims` fixed random directions.

    The first 2 dims numbers are means and deviations of all samples, P(x); then dims means for every class, P(x|y),
    and with `deviations` as many deviations; they are `MISSING` where the client has no labelled sample of the class.
    """

    dims: Count = 8
    classes: Count = 10
    deviations: bool = False

    def __call__(self, client: Client, task: Task) -> Reply:
        x, y = (client.train if len(client.train) else client.test).tensors()
        latent = representations(client.bench.on_torch(), task.models[0], x).double().numpy()
        directions = np.random.default_rng(0).normal(size=(latent.shape[1], self.dims)) / np.sqrt(
            latent.shape[1]
        )
        seen = latent @ directions
        table = np.full(self.shape, MISSING)
        table[0], table[1] = seen.mean(axis=0), seen.std(axis=0)
        if len(client.train):
            for label in np.unique(y.numpy().astype(np.int64)):
                own = seen[y.numpy() == label]
                table[2 + label] = own.mean(axis=0)
                if self.deviations:
                    table[2 + self.classes + label] = own.std(axis=0)
        return Reply(
            id=client.id, slot=task.slots[0], size=len(x), stats={"moments": table.astype(np.float32)}
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Of what is told: moments by directions."""
        return 2 + self.classes * (2 if self.deviations else 1), self.dims

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {"moments": Stat(shape=self.shape)}


MISSING = -1e30  # no moment of real data: a class that the client lacks, or no labels at all


def between(left: Reports, right: Reports) -> Array:
    """Euclidean distance over the rows that both have, scaled to the full number of rows.

    Whoever has no labels is so compared by P(x) alone.
    """
    table = np.zeros((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            both = (a > MISSING / 2).all(axis=1) & (b > MISSING / 2).all(axis=1)
            table[i, j] = np.sqrt(np.square(a[both] - b[both]).sum() * len(a) / max(1, both.sum()))
    return table


def between_scaled(left: Reports, right: Reports) -> Array:
    """Euclidean distance as the authors' code has it: each moment scaled to 0..1 over the clients that are known.

    A class that a client lacks is -1 in each direction, so that clients with other classes are far apart. Whoever has
    no labels at all is compared by P(x) alone.
    """
    a, b = (np.where(np.stack(reports) < MISSING / 2, -1.0, np.stack(reports)) for reports in (left, right))
    low, high = (at(b, axis=(0, 2), keepdims=True) for at in (np.min, np.max))
    a, b = ((one - low) / np.where(high > low, high - low, 1) for one in (a, b))
    squares = np.square(a[:, None] - b[None]).sum(axis=3)
    told = [np.array([(one[2:] > MISSING / 2).any() for one in reports]) for reports in (left, right)]
    squares[..., 2:] *= (told[0][:, None] & told[1][None])[..., None]
    return np.asarray(np.sqrt(squares.sum(axis=2)))


def knee(values: Array) -> float:
    """Where rising values bend upwards, by Kneedle (Satopaa et al., 2011) with its sensitivity of 1.

    From the largest value down, the first that lies further below the straight line from the smallest to the largest
    than its neighbours do, if the next ones come nearer to the line again by one step along it.
    """
    falling = np.sort(values)[::-1]
    count, height = len(falling), float(falling[0] - falling[-1])
    if height <= 0:
        return float(falling[0])
    below = np.linspace(1, 0, count) - (falling - falling[-1]) / height
    before, behind = np.append(below[0], below[:-1]), np.append(below[1:], below[-1])
    peak, valley = (below >= before) & (below >= behind), (below <= before) & (below <= behind)
    found, limit = int(np.argmax(peak)), -np.inf
    for place in range(found, count - 1):
        if peak[place]:
            found, limit = place, below[place] - 1 / (count - 1)
        if valley[place]:
            limit = 0.0
        if below[place + 1] < limit:
            break
    return float(falling[found])


def cut_at_knee(distances: Array) -> Labels:
    """DBSCAN of pairs within the knee of the distances to the nearest; a client near nobody is a group (FLUX)."""
    if len(distances) < 2:
        return np.zeros(len(distances), np.int64)
    others = distances + np.diag(np.full(len(distances), np.inf))
    reach = max(knee(others.min(axis=1)), 1e-12)
    return Density(algorithm="dbscan", eps=reach)(distances, "precomputed")


@part("group", "moments", gives=(GROUPS,))
class ByMoments:
    """Groups by moments of the clients' data under the model of round `after`; before that, all are one group (FLUX).

    Args:
        after: rounds that everybody trains one model for first.
        dims: how many directions of the representation are described.
        clusters: how many groups; none: by the best silhouette, or as the authors' code does it.
        published: the authors' distance, with deviations by class and a mark for classes that a client lacks, and
            their number of groups: DBSCAN within the knee of the distances to the nearest.
    """

    after: Count = 2
    dims: Count = 8
    clusters: Count | None = None
    published: bool = False

    shows: ClassVar[Shows] = Shows(what="exact moments of every client's features", instead=ANY_GROUPS)

    def __call__(self, now: Round) -> dict[int, int]:
        if now.number <= self.after:
            return dict.fromkeys(now.seen, 0)
        if MOMENTS.name not in now.memory:
            DESCRIBED_BY.keep(now.memory, now.models[:1].clone())
            now.groups = {}
        model = DESCRIBED_BY.of(now.memory)
        classes = max(1, now.fleet.known(now.here[0]).classes)

        def ask(ids: list[int]) -> dict[int, NDArray[Any]]:
            step = TellMoments(dims=self.dims, classes=classes, deviations=self.published)
            replies = now.fleet.ask(step, dict.fromkeys(ids, Task(models=model, slots=(0,))))
            return {reply.id: np.asarray(reply.stats["moments"], np.float64) for reply in replies}

        def found(distances: Array) -> Labels:
            if self.published and self.clusters is None:
                return cut_at_knee(distances)
            return cut_tree(distances, clusters=self.clusters)

        return grouped_by_reports(now, MOMENTS, ask, between_scaled if self.published else between, found)


@part("bank", "per-group-from-common", shows=NOTHING, needs=(GROUPS,), gives=(MODEL_PER_GROUP,))
def one_per_group_from_common(now: Round) -> Tensor:
    """A model for every group; a new group starts from the common model that was trained before."""
    return one_per_parent(now, [0] * (1 + max(now.groups.values(), default=0)))


@method("flux", family="clusters")
def flux(train: Train, *, per_round: Count = 10, group: ByMoments = inline(ByMoments)) -> Method:
    """Clients whose data have similar moments under a common model train one together; those without labels can join.

    Everybody trains one model for `after` rounds; then every client tells means and deviations of its data as that
    model represents them, and means by class; clusters of these get a model each, from the common one on. A client
    without labels is placed by P(x) alone (Fenoglio et al., 2025). By default clusters are cut by silhouette, with
    `published` by DBSCAN.
    """
    return fedavg_per_group("flux", train, group, per_round=per_round, bank=one_per_group_from_common)
