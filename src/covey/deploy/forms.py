"""Which statistics an answer has to hold: those that most sites give to the same question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from covey.core import Reply, Step, Task
from covey.fleet.work import Outcome

Form = tuple[Any, ...]


class Forms:
    """The form of every client's last answer to each question; the others' vote says which one is right.

    Methods may so rely on the statistics of the steps they ask for, whatever a single site sends.
    """

    def __init__(self) -> None:
        self.seen: dict[str, dict[int, Form]] = {}

    def checked(self, step: Step, tasks: Mapping[int, Task], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes, with those refused whose statistics have another form than most."""
        forms = {
            o.id: form(o.reply.stats)
            for o in outcomes
            if o.reply and not is_silent(step, tasks[o.id], o.reply)
        }
        seen = self.seen.setdefault(repr(step), {})
        seen.update(forms)
        if not forms:
            return list(outcomes)
        usual, _ = Counter(seen.values()).most_common(1)[0]
        wrong = "its statistics are not those that the other sites give"
        return [
            replace(o, reply=None, refused=wrong) if forms.get(o.id, usual) != usual else o for o in outcomes
        ]


def is_silent(step: Step, task: Task, reply: Reply) -> bool:
    """Whether a reply rightly tells nothing: it has no samples to judge by, or no news since it last told."""
    no_samples = step.kind.startswith("evaluate.") and not reply.size
    return not reply.stats and (no_samples or "tolerance" in task.args)


def form(stats: Mapping[str, Any]) -> Form:
    """The names of statistics with the kind of each: all but the numbers."""
    return tuple((name, kind(stats[name])) for name in sorted(stats))


def kind(value: Any) -> Form:
    """What sort of value it is, and its shape; within a list, what sorts."""
    if isinstance(value, np.ndarray | Tensor):
        return (type(value).__name__, str(value.dtype), tuple(value.shape))
    if isinstance(value, list | tuple):
        return ("list", *("number" if isinstance(v, int | float) else type(v).__name__ for v in value))
    return ("number",) if isinstance(value, int | float) else (type(value).__name__,)
