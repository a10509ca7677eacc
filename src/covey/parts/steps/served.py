"""What a client uses: one row, whatever the method. Evaluation scores it, and it is the model that is taken home."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from covey.core import Client, Fact, Method, Reply, Step, Task, gives_of
from covey.parts.steps.adapted import trained_before_use
from covey.parts.steps.at_home import AT_HOME, HELD_OUT, share_at_home
from covey.parts.steps.private import stays_at_home
from covey.parts.steps.train import Train, best_row
from covey.training.rows import Layout

TRAINED_MODEL = Fact("a model of its own at every client", 'set local = "ditto"')
# The stream of the training before use: that of a round's first evaluation after it, whoever asks for the row.
ADAPTING = ("measure", "evaluate.adapted", 1)
SERVED_ROW = "served"  # in a client's state at a real site, which takes it out and keeps it as a file


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How a client makes the row that it uses of the rows that serve it.

    Args:
        own: its own model (`state["own"]`) in place of them, once it has one.
        adapt: training on its own data before use.
        updates: how many local updates that training is.
    """

    own: bool = False
    adapt: Train | None = None
    updates: int = 1

    @classmethod
    def of(cls, method: Method) -> Self:
        """What the method's clients do."""
        own = TRAINED_MODEL in gives_of(method.local)
        return cls(own=own, adapt=None if own else method.adapt)

    def work(self, train: int, test: int) -> float:
        """How much computing it is, as for a step."""
        return 0.0 if self.adapt is None else self.updates * self.adapt.work(train, test)


def served_row(
    client: Client, task: Task, serving: Serving, rng: np.random.Generator | None = None
) -> tuple[int, Tensor]:
    """The row that the client uses, and the slot that it came from.

    Of several rows the one with the lowest loss on its training data, with the tensors and buffers that stay at home;
    or its own model; or w + a (v - w), v trained from w, where a is the task's argument `own` (without it, 1), or what
    the client finds out by held-out data of its own. Nothing of this leaves a trace in the run. `rng` is for another
    training than that of a round's measurement.
    """
    slot, row = best_row(client, task)
    share = share_of(task, serving)
    if at_home(task) and serving.adapt is not None:
        share = share_at_home(client, serving.adapt, serving.updates, row)
    if serving.own:
        row = client.state.get("own", row)
    elif share:
        assert serving.adapt is not None
        adapt = serving.adapt.settled() if task.args.get("settled") else serving.adapt
        stream = client.stream(*ADAPTING, "round", client.round) if rng is None else rng
        trained = trained_before_use(client, adapt, serving.updates, row, stream)
        row = torch.lerp(row, trained, share)
    if client.live:
        client.state[SERVED_ROW] = {"row": row, "slot": slot, "share": share, "own": serving.own}
    return slot, row


def share_of(task: Task, serving: Serving) -> float:
    """The share of the client's own training before use in what it uses; `AT_HOME` where only the client knows it."""
    if serving.adapt is None:
        return 0.0
    return AT_HOME if at_home(task) else float(task.args.get("own", 1.0))


def at_home(task: Task) -> bool:
    """Whether the client finds the share by itself."""
    return bool(task.args.get("own") == HELD_OUT)


def as_sent(task: Task, serving: Serving, state: object, layout: Layout) -> bool:
    """Whether what a client uses is the one row that it is sent; `state` is what it keeps."""
    kept = state if isinstance(state, dict) else {}
    at_home = "home" in kept or ("buffers" in kept and layout.buffers == "local")
    changed = at_home or (serving.own and "own" in kept) or share_of(task, serving) != 0
    return len(task.models) == 1 and not changed


def leaves_all_as_sent(method: Method, layout: Layout) -> bool:
    """Whether the method's clients use the rows that they are sent as they are, so that the server has them all."""
    serving = Serving.of(method)
    at_home = (layout.buffers == "local" and layout.has_buffers) or stays_at_home(
        method.local, layout
    ) is not None
    return not (at_home or serving.own or serving.adapt is not None)


@dataclass(frozen=True, kw_only=True)
class TakeServed(Step):
    """Gives the row that the client uses. Only a simulation asks this: at a real site it stays there."""

    serving: Serving

    kind: ClassVar[str] = "evaluate.served"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = served_row(client, task, self.serving)
        return Reply(id=client.id, slot=slot, vector=row)

    def work(self, train: int, test: int) -> float:
        return self.serving.work(train, test)
