"""FLIS: clustered federated learning via inference similarity (Morafah et al., 2023)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.core import Client, Key, Method, Reply, Round, Step, Task, method, part, server_client, step
from covey.core.needs import GROUPS
from covey.core.reply_schema import Known, Stat
from covey.core.shows import ANY_GROUPS, Shows
from covey.methods.grouped import fedavg_per_group
from covey.parts.group.reports import Reports, cut_tree, grouped_by_reports
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import Train
from covey.settings import Count, Share, inline

PREDICTIONS: Key[dict[int, NDArray[Any]]] = Key("flis.predictions")


@step(kind="query.predict")
class Predict(Step):
    """Asks for the predicted classes of the first samples of the test data; the server asks itself."""

    samples: Count = 500

    def __call__(self, client: Client, task: Task) -> Reply:
        x, _ = client.test.select(np.arange(min(self.samples, len(client.test)))).tensors()
        classes = client.bench.forward(task.models[0], x).argmax(1).to(dtype=x.new_zeros(0).int().dtype)
        return Reply(id=client.id, slot=task.slots[0], size=len(x), stats={"classes": classes.numpy()})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {"classes": Stat(low=0, high=max(1, known.classes), shape=(None,))}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return FORWARD_SHARE * min(test, self.samples)


def disagreement(left: Reports, right: Reports) -> Array:
    """Share of the samples on which two models predict differently: 1 - cosine of their one-hot predictions."""
    return np.array([[float((a != b).mean()) for b in right] for a in left])


@part("group", "inference", gives=(GROUPS,))
class ByInference:
    """Groups by how often the clients' first trained models agree on samples that the server has (FLIS).

    Args:
        samples: of the server's own data on which models are compared.
        agree: share of equal predictions down to which clients are alike; none: by the best silhouette.
    """

    train: Train
    samples: Count = 500
    agree: Share | None = None

    shows: ClassVar[Shows] = Shows(
        what="what every client's own model says of the server's samples", instead=ANY_GROUPS
    )

    def __call__(self, now: Round) -> dict[int, int]:
        def ask(ids: list[int]) -> dict[int, NDArray[Any]]:
            start = now.fleet.start()
            replies = now.fleet.ask(self.train, dict.fromkeys(ids, Task(models=start[None], slots=(0,))))
            tasks = {
                server_client(place): Task(models=reply.vector[None], slots=(0,))
                for place, reply in enumerate(replies)
                if reply.vector is not None
            }
            told = now.fleet.ask(Predict(samples=self.samples), tasks)
            return {replies[server_client(one.id)].id: np.asarray(one.stats["classes"]) for one in told}

        def found(distances: Array) -> Labels:
            return cut_tree(distances, threshold=None if self.agree is None else 1 - self.agree)

        return grouped_by_reports(now, PREDICTIONS, ask, disagreement, found)


@method("flis", family="clusters", paper="https://arxiv.org/abs/2208.09754")
def flis(train: Train, *, per_round: Count = 10, group: ByInference = inline(ByInference)) -> Method:
    """Clients whose models predict alike on the server's own samples train one model together.

    Every client trains the first model once; two are alike by the share of the server's samples on which their models
    predict the same class, and average linkage makes the groups (Morafah et al., 2023, hierarchical FLIS). The samples
    are inputs of the server's test set, without their labels.
    """
    return fedavg_per_group("flis", train, group, per_round=per_round)
