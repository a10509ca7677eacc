"""Measuring in a simulation: no (model row, sample, shift) goes through the model twice.

Local test sets are mostly drawn from the global one, and many clients use one row: so the scores of single samples are
found once and looked up for everybody who holds them. Rows that have not changed since the last measurement are not run
again. The numbers are those of asking every client, bit for bit wherever a sample's outputs do not depend on the batch
that it is in (lanes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Task
from covey.data.types import Indices, Samples, Shift
from covey.fleet.client_data import ClientData
from covey.fleet.sample_scores import SampleScores
from covey.fleet.work import Call, Executor, Job, Outcome
from covey.parts.steps.evaluate import FORWARD_SHARE, Evaluate
from covey.training.rows import Layout

CHUNK = 2500  # samples of a job: enough for several workers, and the same however many there are
KEPT_BYTES = 256_000_000  # scores that are remembered at most

EvaluationKey = tuple[
    bytes, Shift, bool
]  # a row, how its samples are shifted, whether outputs are kept as well


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of some samples under one row: of sample `index[i]` they are `scores[name][i]`."""

    index: Indices
    scores: Mapping[str, NDArray[Any]]

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + sum(values.nbytes for values in self.scores.values())

    def lacks(self, index: Indices) -> Indices:
        """Those of the samples (once each) that it does not know."""
        return np.setdiff1d(index, self.index, assume_unique=True)

    def with_more(self, index: Indices, scores: Mapping[str, NDArray[Any]]) -> Scored:
        """The same with other samples as well."""
        if not len(self.index):
            return Scored(index, scores)
        both = np.concatenate([self.index, index])
        order = np.argsort(both)
        joined = {name: np.concatenate([old, scores[name]])[order] for name, old in self.scores.items()}
        return Scored(both[order], joined)

    def of(self, index: Indices) -> dict[str, Tensor]:
        """The scores of some samples, in their order."""
        places = np.searchsorted(self.index, index)
        return {name: torch.from_numpy(values[places]) for name, values in self.scores.items()}


UNKNOWN = Scored(np.zeros(0, np.int64), {})


@dataclass(kw_only=True, eq=False)
class Asked:
    """Which clients ask for which samples of one row under one shift."""

    row: Tensor
    like: int  # a client that sees its test data under that shift
    views: dict[int, Indices] = field(default_factory=dict)

    @cached_property
    def samples(self) -> Indices:
        """All that are asked for, in order, once each."""
        held = np.sort(np.concatenate(list(self.views.values())))
        return held[np.flatnonzero(np.diff(held, prepend=held[:1] - 1))]


class Evaluations:
    """What is known of rows on test samples; kept from one measurement to the next."""

    def __init__(self) -> None:
        self.round = -1
        self.now: dict[EvaluationKey, Scored] = {}
        self.before: dict[EvaluationKey, Scored] = {}
        self.counted: dict[EvaluationKey, Indices] = {}  # samples of this round that were counted as work

    def answers(
        self,
        call: Call,
        tasks: Mapping[int, Task],
        client_data: ClientData,
        states: Mapping[int, Mapping[str, Any]],
        layout: Layout,
        execute: Executor,
    ) -> tuple[list[Outcome], float]:
        """The outcomes of those clients for whom a look at what is known is enough, and how much work they are.

        The work is counted in samples trained, as if nothing were known from earlier rounds: so a run that was resumed
        counts as one that was not.
        """
        step = call.step
        own_buffers = layout.buffers == "local" and layout.has_buffers
        if type(step) is not Evaluate or step.split != "test" or own_buffers:
            return [], 0.0
        if call.round != self.round:
            self.round, self.before, self.now, self.counted = call.round, self.now, {}, {}
        asked = self._asked(step, tasks, client_data, states, call.round)
        if not self._find_out(call, step, asked, execute):
            return [], 0.0  # what went wrong is found by asking the clients themselves
        outcomes = []
        for key, one in asked.items():
            known = self.now[key]
            for client, index in one.views.items():
                found = known.of(index)
                outputs, target = found.pop("outputs", None), found.pop("target", None)
                reply = step.answer(client, tasks[client].slots[0], found, outputs, target, len(index))
                outcomes.append(Outcome(id=client, reply=reply))
        work = FORWARD_SHARE * sum(self._news(key, one.samples) for key, one in asked.items())
        self._forget()
        return outcomes, work

    def _asked(
        self,
        step: Evaluate,
        tasks: Mapping[int, Task],
        client_data: ClientData,
        states: Mapping[int, Mapping[str, Any]],
        round: int,
    ) -> dict[EvaluationKey, Asked]:
        rows: dict[int, bytes] = {}
        found: dict[EvaluationKey, Asked] = {}
        for client, task in tasks.items():
            if len(task.models) != 1 or "home" in states.get(client, {}):
                continue  # it chooses, or has tensors of its own
            view = step.some_of(client_data.test(client, round))
            if not isinstance(view, Samples) or not len(view):
                continue
            place = task.models.data_ptr()
            if place not in rows:
                rows[place] = digest(task.models[0])
            key = (rows[place], view.shift, bool(step.metrics))
            found.setdefault(key, Asked(row=task.models[0], like=client)).views[client] = view.index
        return found

    def _find_out(
        self, call: Call, step: Evaluate, asked: Mapping[EvaluationKey, Asked], execute: Executor
    ) -> bool:
        """Runs what is not known yet; says whether all of it worked."""
        parts: list[tuple[EvaluationKey, Indices]] = []
        jobs = []
        for key, one in asked.items():
            known = self.now.get(key) or self.before.get(key) or UNKNOWN
            self.now[key] = known
            lacking = known.lacks(one.samples)
            for start in range(0, len(lacking), CHUNK):
                index = lacking[start : start + CHUNK]
                args = {"index": index, "part": len(parts)}
                task = Task(models=one.row[None], slots=(0,), args=args)
                jobs.append(Job(ids=(one.like,), tasks=(task,), states=({},), weight=float(len(index))))
                parts.append((key, index))
        if not jobs:
            return True
        scoring = replace(call, step=SampleScores(outputs=bool(step.metrics)))
        replies = [outcome.reply for outcome in execute(scoring, jobs)]
        if any(reply is None for reply in replies):
            return False
        scores = {int(reply.stats["part"]): reply.stats["scores"] for reply in replies if reply is not None}
        for part, (key, index) in enumerate(parts):
            self.now[key] = self.now[key].with_more(index, scores[part])
        return True

    def _news(self, key: EvaluationKey, index: Indices) -> int:
        """How many of the samples were not asked for before in this round."""
        counted = self.counted.get(key, UNKNOWN.index)
        new = np.setdiff1d(index, counted, assume_unique=True)
        self.counted[key] = np.concatenate([counted, new])
        return len(new)

    def _forget(self) -> None:
        """Keeps memory within its bound: what was not asked for in this round goes first."""
        kept = sum(one.nbytes for one in self.now.values())
        if kept + sum(one.nbytes for one in self.before.values()) > KEPT_BYTES:
            self.before = {}
        for key in list(self.now)[:-1]:  # the first that were asked for, first
            if kept <= KEPT_BYTES:
                break
            kept -= self.now.pop(key).nbytes


def digest(row: Tensor) -> bytes:
    """Equal for equal rows."""
    return hashlib.sha256(np.ascontiguousarray(row.numpy()).data).digest()
