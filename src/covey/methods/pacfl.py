"""PACFL: efficient distribution similarity identification via principal angles (Vahidian et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.ask_once import answers
from covey.core import Client, Method, Reply, Round, Step, Task
from covey.group.reports import Array, Labels, Reports, cut_tree, grouped_by_reports
from covey.methods.grouped import fedavg_per_group
from covey.needs import GROUPS, Facts, Key
from covey.ranges import Count, Range
from covey.settings import takes, validated
from covey.statistics import Known, Stat
from covey.steps.train import Train

Angle = Annotated[float, Range(above=0, most=90)]
SUBSPACES: Key[dict[int, NDArray[Any]]] = Key("subspaces")


@validated
@dataclass(frozen=True, kw_only=True)
class TellSubspace(Step):
    """Asks for the first left singular vectors of the client's data: an orthonormal basis, [features, vectors]."""

    vectors: Count = 3

    kind: ClassVar[str] = "query.subspace"

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x, _ = (client.train if len(client.train) else client.test).tensors()  # labels are not needed
        matrix = x.flatten(1).double().numpy()
        singular = np.linalg.svd(matrix.T @ matrix)[0]  # those of the data matrix, features by samples
        u = singular[:, : self.vectors]
        basis = np.zeros((matrix.shape[1], self.vectors), np.float32)
        basis[:, : u.shape[1]] = u
        return Reply(id=client.id, size=len(x), stats={"subspace": basis})

    def expects(self, known: Known) -> dict[str, Stat]:
        features = int(np.prod(known.shape)) if known.shape else None
        return {"subspace": Stat(low=-1.001, high=1.001, shape=(features, self.vectors))}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return float(train)


def principal_angles(left: Reports, right: Reports) -> Array:
    """The smallest principal angle in degrees between all pairs of subspaces: arccos of the largest singular value."""
    table = np.zeros((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            cosine = float(np.linalg.svd(a.astype(np.float64).T @ b, compute_uv=False)[0])
            # arccos is steep at 1: what is nearer than rounding of float32 is the same subspace
            table[i, j] = 0.0 if a is b or cosine > 1 - 1e-7 else np.degrees(np.arccos(min(1.0, cosine)))
    return table


@validated
@dataclass(frozen=True, kw_only=True)
class ByAngles:
    """Groups by the smallest principal angle between the subspaces of the clients' data (PACFL).

    Args:
        vectors: how many principal vectors a client tells (the paper's p).
        angle: degrees at which the tree is cut (the paper's beta); none: by the best silhouette.
        clusters: how many groups; none: as `angle` says.
    """

    vectors: Count = 3
    angle: Angle | None = None
    clusters: Count | None = None

    gives: ClassVar[Facts] = (GROUPS,)

    def __call__(self, now: Round) -> dict[int, int]:
        ask = answers(
            now, TellSubspace(vectors=self.vectors), lambda reply: np.asarray(reply.stats["subspace"])
        )

        def found(distances: Array) -> Labels:
            return cut_tree((distances + distances.T) / 2, clusters=self.clusters, threshold=self.angle)

        return grouped_by_reports(now, SUBSPACES, ask, principal_angles, found)


@validated
@takes(ByAngles)
def pacfl(train: Train, *, per_round: Count = 10, **angles: Any) -> Method:
    """Clients whose data span like subspaces train one model together: a few singular vectors are told once.

    Every client tells the first `vectors` left singular vectors of its data; clients are clustered by the smallest
    principal angle between their subspaces, average linkage cut at `angle` degrees (Vahidian et al., 2023).

    Args:
        per_round: how many clients work in a round.
    """
    return fedavg_per_group("pacfl", train, ByAngles(**angles), per_round=per_round)
