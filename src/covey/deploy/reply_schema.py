"""Which statistics an answer has to hold: those that most sites give to the same question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from covey.core.round import Step, Task
from covey.fleet.bookkeeping import is_silent
from covey.fleet.work import Outcome

Schema = tuple[Any, ...]


class ReplySchemas:
    """What most sites gave when they were last asked something; who is asked alone is measured by that.

    Methods may so rely on the statistics of the steps they ask for, whatever a single site sends.
    """

    def __init__(self) -> None:
        self.usual: dict[Schema, Schema] = {}

    def checked(self, step: Step, tasks: Mapping[int, Task], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes, with those refused whose statistics have another schema than most of those to a like task."""
        told = {
            o.id: (likeness(step, tasks[o.id]), schema_of(o.reply.stats))
            for o in outcomes
            if o.reply and not is_silent(step, tasks[o.id], o.reply)
        }
        for like in {like for like, _ in told.values()}:
            votes = Counter(said for other, said in told.values() if other == like)
            if votes.total() > 2:  # fewer cannot outvote a wrong one
                self.usual[like] = votes.most_common(1)[0][0]
        wrong = "its statistics are not those that the other sites give"
        return [
            replace(o, reply=None, refused=wrong)
            if o.id in told and told[o.id][1] != self.usual.get(*told[o.id])
            else o
            for o in outcomes
        ]


def likeness(step: Step, task: Task) -> Schema:
    """Equal for questions whose answers have the same schema."""
    sizes = ((name, len(v) if isinstance(v, list | tuple | dict) else 1) for name, v in task.args.items())
    return (repr(step), len(task.models), *sorted(sizes))


def schema_of(stats: Mapping[str, Any]) -> Schema:
    """The names of statistics with the kind of each: all but the numbers."""
    return tuple((name, kind(stats[name])) for name in sorted(stats))


def kind(value: Any) -> Schema:
    """What sort of value it is, and its shape; within a list, what sorts."""
    if isinstance(value, np.ndarray | Tensor):
        return (type(value).__name__, str(value.dtype), tuple(value.shape))
    if isinstance(value, list | tuple):
        return ("list", *("number" if isinstance(v, int | float) else type(v).__name__ for v in value))
    return ("number",) if isinstance(value, int | float) else (type(value).__name__,)
