"""CFL: clustered federated learning by splitting (Sattler et al., 2020)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import KNOWN_GROUPS, ONE_MODEL, Method, Mixing, Reply, Round, Shows, Task, method, part
from covey.core.shows import ANY_GROUPS
from covey.methods.baselines import fedavg
from covey.parts.mix.gram import products
from covey.parts.mix.regroup import regrouped
from covey.parts.selection.plain import Everybody
from covey.parts.steps.train import Train
from covey.settings import Natural, Positive, inline


def halves(gram: Array) -> NDArray[np.bool_]:
    """Two groups by complete linkage on 1 - cosine of the updates: True marks the one without the first update."""
    from sklearn.cluster import AgglomerativeClustering

    lengths = np.sqrt(np.maximum(np.diag(gram), 1e-24))
    distance = 1 - np.clip(gram / np.outer(lengths, lengths), -1, 1)
    np.fill_diagonal(distance, 0)
    found = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete").fit_predict(
        distance
    )
    return np.asarray(found != found[0])


def should_split(gram: Array, *, still: float, apart: float) -> bool:
    """||mean update|| < still while max ||update|| > apart: together they stand still, alone they would not."""
    return bool(np.sqrt(max(0.0, gram.mean())) < still and np.sqrt(np.diag(gram).max()) > apart)


@part(
    "send",
    "known-group",
    shows=Shows(what="which group a client's own update puts it in", instead=ANY_GROUPS, in_updates=True),
    needs=(KNOWN_GROUPS,),
)
def to_known_group(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """The model of the client's group; a client without one is sent all models and works on the best."""
    everything = Task(models=now.models, slots=tuple(range(len(now.models))))
    return {
        i: Task(models=now.models[g : g + 1], slots=(g,)) if (g := now.groups.get(i, -1)) >= 0 else everything
        for i in ids
    }


@part("mix", "split", needs=(ONE_MODEL,), gives=(KNOWN_GROUPS,))
class SplitAndAverage:
    """CFL: groups that pull apart are cut in two, and each group's model is the equal mean of its members' replies.

    Args:
        still: length of the mean update below which a group counts as standing still.
        apart: length of the longest update above which its clients pull apart.
        patience: rounds before any group may split.
    """

    still: Positive = 0.4
    apart: Positive = 1.6
    patience: Natural = 20

    shows: ClassVar[Shows] = Shows(
        what="single updates, whose angles split the clients", instead=ANY_GROUPS, in_updates=True
    )

    def __call__(self, now: Round) -> Mixing:
        now.groups = now.groups | {reply.id: reply.slot for reply in now.replies}
        count = len(now.models)
        for group in range(count):
            members = [reply for reply in now.replies if reply.slot == group]
            if now.number > self.patience and len(members) > 2 and (away := self._split(now, group, members)):
                now.groups = now.groups | dict.fromkeys(away, count)
                count += 1
        return regrouped(now, count, np.ones(len(now.replies)))

    def _split(self, now: Round, group: int, members: Sequence[Reply]) -> list[int]:
        """Who leaves the group; nobody, if it holds together."""
        trainable = now.fleet.layout.trainable
        old = now.models[group, :trainable]
        gram = products([reply.vector[:trainable] - old for reply in members if reply.vector is not None])
        if not should_split(gram, still=self.still, apart=self.apart):
            return []
        return [reply.id for reply, leaves in zip(members, halves(gram), strict=True) if leaves]


@method("cfl", family="clusters", paper="https://arxiv.org/abs/1910.01991")
def cfl(train: Train, *, mix: SplitAndAverage = inline(SplitAndAverage)) -> Method:
    """Everybody trains, and a group whose mean update is short while single updates are long is cut in two.

    After round `patience`, a group of more than two splits when ||mean of dW|| < still and max ||dW|| > apart, by
    complete linkage on the cosines of the updates; each group's model is then the equal mean of its members' (Sattler
    et al., 2020). The two lengths depend on the model and the learning rate. An unseen client joins the group whose
    model fits its data best.
    """
    return replace(fedavg(train), name="cfl", select=Everybody(), send=to_known_group, mix=mix)
