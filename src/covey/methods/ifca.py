"""IFCA (Ghosh et al., 2020): k models, and every client works on the one that suits it best."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from covey.core import BEST_MODEL, Client, Method, Reply, Round, Step, Task, method, part, step
from covey.core.needs import KNOWN_GROUPS, SEVERAL_MODELS
from covey.parts.banks import to_group
from covey.parts.mix.average import Weighting
from covey.parts.mix.shared import GroupAverage, leading_columns
from covey.parts.selection.plain import Uniform
from covey.parts.steps import Train, best_row
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.settings import Count, Natural, Share, takes


@step(kind="query.best", passes=FORWARD_SHARE)
class TellBest(Step):
    """Asks which of the models has the lowest loss on the client's training data."""

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, _ = best_row(client, task)
        return Reply(id=client.id, slot=slot, size=len(client.train))


@part("send", "all", needs=(SEVERAL_MODELS,), shows=BEST_MODEL)
class AllModels:
    """Everybody gets all models and works on the best (IFCA); the shared first layers are charged once.

    `choose_on`: the best on that many training samples, drawn anew in every round; 0 is on all of them.
    """

    n_shared: Natural = 0
    choose_on: Natural = 0

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        cut = leading_columns(now.fleet.layout, self.n_shared)
        slots = tuple(range(len(now.models)))
        args = {"choose_on": self.choose_on} if self.choose_on else {}
        task = Task(models=now.models, slots=slots, shared=cut if len(slots) > 1 else 0, args=args)
        return dict.fromkeys(ids, task)


@part("send", "last-choice", needs=(SEVERAL_MODELS, KNOWN_GROUPS), shows=BEST_MODEL)
class LastChoice:
    """Everybody is served with the model it chose last; a client that never chose gets all of them."""

    n_shared: Natural = 0

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        unknown = [client for client in ids if client not in now.groups]
        return to_group(now, ids) | AllModels(n_shared=self.n_shared)(now, unknown)


@part("bank", "random-starts", gives=(SEVERAL_MODELS,), shows=BEST_MODEL)
class RandomStarts:
    """k models with different first weights (IFCA); redrawn until each attracts enough of a sample of clients.

    After `redraws` the best balanced of all draws is taken. The first draw's first model is the given one, so that
    k = 1 is FedAvg.

    Args:
        k: how many models.
        redraws: how often the first models are drawn anew at most.
        least: share of some clients for which each first model must be the best, at most 1/k.
        asked: how many clients are asked which model is the best.
    """

    k: Count = 4
    redraws: Natural = 20
    least: Share = 0.1
    asked: Count = 10
    n_shared: Natural = 0

    def __call__(self, now: Round) -> Tensor:
        if len(now.models):
            return now.models
        best, balance = self.draw(now, 0), -1.0
        if self.k == 1 or not self.redraws:
            return best
        sample = sorted(now.stream("balance").permutation(now.here)[: self.asked].tolist())
        for number in range(1 + self.redraws):
            rows = self.draw(now, number)
            replies = now.fleet.ask(TellBest(), self.tasks(now, rows, sample))
            counts = np.bincount([reply.slot for reply in replies], minlength=self.k)
            smallest = float(counts.min()) / max(1, len(replies))
            if smallest > balance:
                best, balance = rows, smallest
            if balance >= min(self.least, 1 / self.k):
                break
        now.notes["balance"] = {"draws": number + 1, "smallest_share": round(balance, 4)}
        return best

    def draw(self, now: Round, number: int) -> Tensor:
        """The models of one draw; the shared first layers are those of its first model."""
        rows = torch.stack([now.fleet.start(number * self.k + j) for j in range(self.k)])
        cut = leading_columns(now.fleet.layout, self.n_shared)
        rows[:, :cut] = rows[0, :cut]
        return rows

    def tasks(self, now: Round, rows: Tensor, ids: Sequence[int]) -> dict[int, Task]:
        cut = leading_columns(now.fleet.layout, self.n_shared)
        return dict.fromkeys(ids, Task(models=rows, slots=tuple(range(self.k)), shared=cut))


@part("after", "choices", shows=BEST_MODEL, needs=(SEVERAL_MODELS,), gives=(KNOWN_GROUPS,))
def remember_choices(now: Round) -> None:
    """A client belongs to the group whose model it chose last."""
    now.groups |= {reply.id: reply.slot for reply in now.replies}


@method("ifca", family="clusters", paper="https://arxiv.org/abs/2006.04088")
@takes(Uniform, RandomStarts, without=("asked",))
def ifca(
    train: Train,
    *,
    choose_on: Count | None = None,
    serve: Literal["best", "last"] = "best",
    weighting: Weighting = "equal",
    per_round: Count = 10,
    k: Count = 4,
    redraws: Natural = 20,
    least: Share = 0.1,
    n_shared: Natural = 0,
) -> Method:
    """Every client gets all `k` models, trains the one with the lowest loss on its data, and sends it back.

    w_j <- mean of the models of those who chose j; a model that nobody chose stays. The first models are redrawn,
    up to `redraws` times, until each is the best for a share `least` of some clients (at most 1/k). The
    first `n_shared` tensors are averaged over everybody. `serve`: whoever uses a model chooses the best of all again,
    or takes the one it chose last. `choose_on = 1` with `redraws = 0` is how the embedding paper runs it. With k = 1 it
    is FedAvg, bit for bit.

    Args:
        choose_on: batches of its training data on which a client that trains chooses; none is all of them.
        serve: whoever uses a model takes the best of all again, or the one it chose last.
    """
    return Method(
        name="ifca",
        bank=RandomStarts(asked=per_round, k=k, redraws=redraws, least=least, n_shared=n_shared),
        select=Uniform(per_round=per_round),
        send=AllModels(n_shared=n_shared, choose_on=(choose_on or 0) * train.batch),
        serve=LastChoice(n_shared=n_shared) if serve == "last" else None,
        local=train,
        mix=GroupAverage(weighting=weighting, n_shared=n_shared),
        after=(remember_choices,),
    )
