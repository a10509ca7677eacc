"""What serves clients in place of the last round's model: a running average of the models of the last rounds.

Each round's model carries noise from who happened to train it and from a learning rate that does not vanish. An
average over rounds has less of it, at no cost for clients (Polyak and Juditsky, 1992; its exponential form is usual
for deep networks). Training goes on from the last model.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from covey.core import Key, Round, Send, Task, part
from covey.core.shows import NOTHING

NEWEST = 0.3  # share of the newest model: about the last three rounds count
AVERAGES: Key[dict[int, Tensor]] = Key("averages over rounds", 'add "average" to after')


@part("after", "average", gives=(AVERAGES,), shows=NOTHING)
class KeepAverages:
    """a <- a + share (w - a) for every model w that has replies in the round; a starts as the first such w."""

    def __call__(self, now: Round) -> None:
        kept = dict(AVERAGES.get(now.memory, {}))
        for slot in sorted({reply.slot for reply in now.replies}):
            newest = now.models[slot]
            kept[slot] = torch.lerp(kept.get(slot, newest), newest, NEWEST)
        AVERAGES.keep(now.memory, kept)


@part("send", "average", needs=(AVERAGES,), shows=NOTHING)
class SendAverages:
    """What `send` sends, with the average over rounds in place of every model that has one."""

    send: Send

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        averages = AVERAGES.get(now.memory, {})
        rows = now.models.clone()
        for slot, average in averages.items():
            rows[slot] = average
        return {i: replace(task, models=rows[list(task.slots)]) for i, task in self.send(now, ids).items()}
