"""PACFL: efficient distribution similarity identification via principal angles (Vahidian et al., 2023)."""

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.core import Client, Key, Known, Method, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.needs import GROUPS
from covey.core.reply_schema import Stat
from covey.core.shows import ANY_GROUPS
from covey.methods.grouped import fedavg_per_group
from covey.parts.ask_once import answers
from covey.parts.group.reports import Reports, cut_tree, grouped_by_reports
from covey.parts.steps.train import Train
from covey.settings import Count, Range, inline
from covey.training.models.encoders import as_numbers

Angle = Annotated[float, Range(above=0, most=90)]
SUBSPACES: Key[dict[int, NDArray[Any]]] = Key("subspaces")


@step(kind="query.subspace", passes=1.0)
class TellSubspace(Step):
    """Asks for the first left singular vectors of the client's data: an orthonormal basis, [features, vectors].

    With `by_class` as many for each class, side by side; nothing but zeros for a class that the client lacks.
    """

    vectors: Count = 3
    by_class: bool = False

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x, y = (client.train if len(client.train) else client.test).tensors()  # labels are not needed
        matrix = as_numbers(x).flatten(1).double().numpy()
        parts = [matrix]
        if self.by_class and len(client.train):
            parts = [matrix[y.numpy() == label] for label in range(len(client.train.dataset.classes))]
        count = len(client.train.dataset.classes) if self.by_class else 1
        bases = [first_singular(part, self.vectors) for part in parts]
        bases += [np.zeros_like(bases[0])] * (count - len(bases))
        return Reply(id=client.id, size=len(x), stats={"subspace": np.hstack(bases).astype(np.float32)})

    def expects(self, known: Known) -> dict[str, Stat]:
        features = int(np.prod(known.shape)) if known.shape else None
        columns = self.vectors * (known.classes if self.by_class else 1)
        return {"subspace": Stat(low=-1.001, high=1.001, shape=(features, columns))}


def first_singular(matrix: Array, count: int) -> Array:
    """The first left singular vectors of the samples (rows) as columns; zeros where there are not so many samples."""
    basis = np.zeros((matrix.shape[1], count))
    there = min(count, len(matrix), matrix.shape[1])
    if there:
        basis[:, :there] = np.linalg.svd(matrix.T @ matrix)[0][:, :there]
    return basis


def smallest_angles(left: Reports, right: Reports) -> Array:
    """The smallest angle in degrees between any two single vectors, one of each client; their signs do not count."""
    return np.array(
        [[np.degrees(np.arccos(min(1.0, float(np.abs(a.T @ b).max())))) for b in right] for a in left]
    )


def principal_angles(left: Reports, right: Reports) -> Array:
    """The smallest principal angle in degrees between all pairs of subspaces: arccos of the largest singular value."""
    table = np.zeros((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            cosine = float(np.linalg.svd(a.astype(np.float64).T @ b, compute_uv=False)[0])
            # arccos is steep at 1: what is nearer than rounding of float32 is the same subspace
            table[i, j] = 0.0 if a is b or cosine > 1 - 1e-7 else np.degrees(np.arccos(min(1.0, cosine)))
    return table


@part("group", "angles", gives=(GROUPS,))
class ByAngles:
    """Groups by the smallest principal angle between the subspaces of the clients' data (PACFL).

    Args:
        vectors: how many principal vectors a client tells (the paper's p).
        angle: degrees at which the tree is cut (the paper's beta); none: by the best silhouette.
        clusters: how many groups; none: as `angle` says.
        published: as in the authors' code, vectors of each class and the smallest angle between any two single ones.
    """

    vectors: Count = 3
    angle: Angle | None = None
    clusters: Count | None = None
    published: bool = False

    shows: ClassVar[Shows] = Shows(what="directions in which every client's samples lie", instead=ANY_GROUPS)

    def __call__(self, now: Round) -> dict[int, int]:
        by_class = self.published and now.fleet.known(now.here[0]).classes > 0
        step = TellSubspace(vectors=self.vectors, by_class=by_class)
        ask = answers(now, step, lambda reply: np.asarray(reply.stats["subspace"]))
        angles = smallest_angles if self.published else principal_angles

        def found(distances: Array) -> Labels:
            return cut_tree((distances + distances.T) / 2, clusters=self.clusters, threshold=self.angle)

        return grouped_by_reports(now, SUBSPACES, ask, angles, found)


@method("pacfl", family="clusters", paper="https://arxiv.org/abs/2209.10526")
def pacfl(train: Train, *, per_round: Count = 10, group: ByAngles = inline(ByAngles)) -> Method:
    """Clients whose data span similar subspaces train one model together: a few singular vectors are told once.

    Every client tells the first `vectors` left singular vectors of its data; clients are clustered by the smallest
    principal angle between their subspaces, average linkage cut at `angle` degrees (Vahidian et al., 2023).
    """
    return fedavg_per_group("pacfl", train, group, per_round=per_round)
