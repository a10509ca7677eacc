"""Grouping by the one label that stands out most at a client (CFIC, eq. 2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core import Client, Facts, Known, Reply, Round, Select, Shows, Stat, Step, Task, part, step
from covey.core.needs import GROUPS, KNOWN_GROUPS
from covey.core.shows import NOTHING
from covey.errors import UserError
from covey.parts.ask_once import answers, news
from covey.parts.steps.privacy import Privacy, randomised, spend
from covey.settings import Epsilon


def label_feature(counts: NDArray[np.integer]) -> int:
    """L = argmax over i of |D_i - 1/C|, D the label shares.

    Ties go to the larger share, then the smaller label.

    The paper writes argmin of log|D_i - 1/C| / sum of logs: all logs are negative, so the smallest ratio belongs to
    the largest deviation. The ratio itself is not defined where a share is exactly 1/C; this is.
    """
    # |D_i - 1/C| times n C, in whole numbers: shares that are equal on paper are equal here.
    total = int(counts.sum())
    deviation = np.abs(len(counts) * counts.astype(np.int64) - total)
    return int(np.lexsort((-counts.astype(np.int64), -deviation))[0])


@step(kind="query.label-feature")
class TellLabel(Step):
    """A client's label feature: one whole number is all that the server learns about its data.

    With `epsilon` it is sometimes a lie: randomised response over the C labels, true with probability
    e^epsilon / (e^epsilon + C - 1), which hides all data of the client.
    """

    epsilon: Epsilon | None = None

    whole_client: ClassVar[bool] = True

    @property
    def counted(self) -> bool:
        """Whether the answer has a privacy loss that can be counted."""
        return self.epsilon is not None

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = len(client.train.dataset.classes)
        if not classes:
            raise UserError("method cfic groups clients by label, but the data set has no classes")
        counts = np.bincount(client.train.labels().astype(np.int64), minlength=classes)
        label = label_feature(counts)
        if self.epsilon is None:
            return Reply(id=client.id, stats={"label": label})
        spent = (
            spend(client.state, Privacy(epsilon=self.epsilon))
            if client.account is None
            else client.account.spend(self.epsilon)
        )
        said = randomised(label, classes, self.epsilon, None if client.live else client.rng)
        return Reply(id=client.id, stats={"label": said, "epsilon": spent})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {"label": Stat(low=0, high=known.classes - 1, whole=True)}


def with_labels(now: Round, ids: Iterable[int], epsilon: float | None = None) -> dict[int, int]:
    """The groups, with those of `ids` that had none asked for their label.

    A client that does not answer is asked again.
    """
    ask = answers(now, TellLabel(epsilon=epsilon), lambda reply: int(reply.stats["label"]))
    return now.groups | news(now, now.groups, ask, ids)


@part(
    "group",
    "label-feature",
    shows=Shows(what="the exact label that stands out at every client", instead="set method.epsilon"),
    gives=(GROUPS,),
)
def by_label(now: Round) -> dict[int, int]:
    """CFIC's clusters: clients whose most unusual label is the same are a group.

    An unseen client is asked, and placed, as soon as it can be reached.
    """
    return with_labels(now, now.here)


@part("group", "noisy-label-feature", gives=(GROUPS,), shows=NOTHING)
class ByNoisyLabel:
    """CFIC's clusters of labels that are sometimes lies, by randomised response.

    Args:
        epsilon: privacy loss of the answer, for all data of the client.
    """

    epsilon: Epsilon = 2.0

    def __call__(self, now: Round) -> dict[int, int]:
        return with_labels(now, now.here, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class LabelWhenChosen:
    """Algorithm 1 as printed: a client's label becomes known only when it is first chosen to train."""

    select: Select

    gives: ClassVar[Facts] = (KNOWN_GROUPS,)
    shows: ClassVar[Shows] = Shows(
        what="the exact label that stands out at a client",
        instead="set method.lazy = false and method.epsilon",
    )

    def __call__(self, now: Round) -> list[int]:
        chosen = self.select(now)
        now.groups = with_labels(now, chosen)
        return chosen
