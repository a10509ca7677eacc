"""Evaluation: every number is named after the data it was measured on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from covey.core import (
    Fleet,
    Measurement,
    Method,
    Reply,
    RoundEnd,
    State,
    Step,
    Task,
    each_reply,
    served,
    server_client,
)
from covey.core.checks import not_measurable
from covey.errors import UserError
from covey.parts.steps.evaluate import Evaluate, values_in
from covey.parts.steps.judged import EvaluateAdapted
from covey.parts.steps.noisy_evaluate import NoisyEvaluate
from covey.parts.steps.personal import EvaluateOwn
from covey.parts.steps.served import Serving, leaves_all_as_sent
from covey.parts.steps.train import Train
from covey.settings import Count, Natural, only_with, validated_in
from covey.training.metrics import AGGREGATES, SCORES, Metric, Metrics, base_name, metric_named
from covey.training.objective import Objective


@validated_in("measure")
@dataclass(frozen=True, kw_only=True)  # said again for the pages of the API, which are made from the source
class Measuring:
    """What is measured every `every` rounds, and after the last one.

    Local numbers are given as mean over clients, weighted by samples, standard deviation, worst 10 %, and by group.

    Args:
        every: rounds between two measurements; the last round is always measured. auto begins with 1 and grows where
            measuring would be more than a quarter of the work of training, counted in samples (never by the clock).
            Where that would be fewer than 20 points, they are on a fixed sample of the test data, the last on all.
        global_test: whether every row of the bank is measured on the server's test set.
        local_test: whether every client is measured on its own test data.
        fine_tune: whether clients are measured once more at the end, after training on their own data.
        fine_tune_updates: how many local updates that training is.
        whom: all clients, or only those that trained in the round.
        metrics: numbers about all predictions: macro-f1, balanced-accuracy, auc, brier, perplexity, calibration-error,
            rmse, r2, or your own.
        least: clients with fewer test samples count in the mean over samples only, not in that over clients.
        per_class: auc and balanced-accuracy are given only for data with this many samples of every class.

    Examples:
        >>> measure = covey.Measuring(every=5, global_test=False)
    """

    every: Count | Literal["auto"] = 1
    global_test: bool = True
    local_test: bool = True
    fine_tune: bool = False
    fine_tune_updates: Count = 1
    whom: Literal["all", "trained"] = "all"
    metrics: tuple[str | Metric, ...] = ()
    least: Count = 1
    per_class: Natural = 0

    def __post_init__(self) -> None:
        called = [m.name for m in self.told]
        for m in self.told:
            if called.count(m.name) > 1:
                raise UserError(
                    f"measure.metrics has {called.count(m.name)} metrics called {m.name!r}; name them apart"
                )
            if m.of is not None and m.name in SCORES:
                raise UserError(
                    f"measure.metrics: a metric of your own is called {m.name!r}, as what the objective gives"
                )
        on_clients = self.local_test or self.fine_tune
        for names, holds, what in (
            ("fine_tune_updates", self.fine_tune, "measure.fine_tune = true"),
            ("whom least", on_clients, "measure.local_test or measure.fine_tune"),
            ("per_class", bool(self.metrics), "measure.metrics"),
            (
                "metrics",
                on_clients or self.global_test,
                "measure.global_test, measure.local_test or measure.fine_tune",
            ),
        ):
            only_with("measure", self, names, holds, what)

    def pace(self, round: int, fleet: Fleet, rounds: int | None = None) -> Pace:
        """How a round of a run with `rounds` rounds is measured, unless it is the last."""
        if self.every == "auto":
            return pace(fleet, round, rounds)
        return Pace(every=self.every, due=round % self.every == 0)

    @property
    def told(self) -> tuple[Metric, ...]:
        """The metrics that the settings ask for."""
        named = (
            m if isinstance(m, Metric) else metric_named(m, f"measure.metrics = {m!r}") for m in self.metrics
        )
        return tuple(
            replace(m, per_class=self.per_class) if m.name in BY_CLASS and self.per_class else m
            for m in named
        )

    def overall(self, objective: Objective) -> list[str]:
        """The names of the numbers over all clients, measured while the run is under way, that have a better and a
        worse."""
        metrics = Metrics.directed(objective, self.told)
        of_all = [f"global-test/{m.name}" for m in metrics if self.global_test]
        ends = [end for end in AGGREGATES if end != "std"]
        return of_all + [f"local-test/{m.name}-{end}" for m in metrics for end in ends if self.local_test]

    def __call__(
        self, method: Method, state: State, fleet: Fleet, last: bool, rounds: int | None = None
    ) -> list[Measurement]:
        now = Pace() if last else self.pace(state.round, fleet, rounds)
        if not now.due:
            return []
        fleet.ledger.note_measured(state.round)
        fleet.ledger.sample = min(fleet.ledger.sample, now.share)
        found: list[Measurement] = []
        check_private_measure(self, method, fleet)
        if self.global_test:
            found += on_global_test(state, fleet, self.told, now.share)
        if self.local_test:
            found += on_local_tests(
                method, state, fleet, self.whom, self.told, share=now.share, least=self.least
            )
        if self.fine_tune and last:
            found += on_local_tests(
                method,
                state,
                fleet,
                self.whom,
                self.told,
                fine_tune=self.fine_tune_updates,
                least=self.least,
            )
        return found


# What measuring may cost in any case: samples times parameters, about two seconds of a core.
FREE = 1e9
SHARE = 0.2  # of the work of training; with what surrounds a forward pass, a quarter of its seconds
POINTS = 20  # of a curve, at least
BY_CLASS = ("auc", "balanced-accuracy")  # what a few samples of a class cannot tell
LEAST_CLIENTS = 100  # of a sample of them, where there are more
LEAST_ADAPTED = 10  # the same where each trains before it is measured


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a round is measured: every so many rounds, on which share of the test data, and whether it is one of them."""

    every: int = 1
    share: float = 1.0
    due: bool = True


def pace(fleet: Fleet, round: int, rounds: int | None) -> Pace:
    """As often as the work of training allows, but at least `POINTS` times in all `rounds`, then on a sample.

    With m the work of measuring on all and t that of a round, a sample of s = k SHARE t / m every k rounds is `SHARE`
    of training. It is fixed when it is first needed: points of one curve are about the same data.
    """
    ledger = fleet.ledger
    every, share, most = interval(fleet, round), ledger.sample, max(1, (rounds or POINTS * round) // POINTS)
    if share < 1:
        every = most
    elif rounds is not None and every > most:
        measurement, training = ledger.work_measuring / ledger.times_measured, ledger.work / round
        every, share = most, min(1.0, most * SHARE * training / measurement)
    return Pace(every=every, share=share, due=round - ledger.last_measured >= every)


def interval(fleet: Fleet, rounds: int) -> int:
    """Rounds from one measurement to the next, so that measuring is no more than `SHARE` of training.

    With m the work of a measurement and t that of a round (samples trained once), it is the least k with
    m / k <= SHARE t. `rounds` are done.
    """
    ledger = fleet.ledger
    if ledger.work_measuring * fleet.layout.size <= FREE or not ledger.work:
        return 1
    measurement = ledger.work_measuring / ledger.times_measured
    training = ledger.work / rounds
    return max(1, math.ceil(measurement / (SHARE * training)))


def seldom_measured(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A single run's tables: it is measured as seldom as its work asks for, unless they say how often.

    Not where the round of a number matters (a target, an early stop), nor where runs are compared round by round.
    """
    given = tables.get("measure", {})
    if (
        not isinstance(given, dict)
        or "every" in given
        or "stop" in tables
        or tables.get("target") not in (None, "none")
    ):
        return dict(tables)
    return {**tables, "measure": {**given, "every": "auto"}}


@dataclass(kw_only=True)
class SparseWatch:
    """A watcher that says, once, that not every round is measured from now on."""

    measuring: Measuring
    say: Callable[[str], None]
    rounds: int
    said: bool = False

    def __call__(self, end: RoundEnd) -> None:
        now = self.measuring.pace(end.state.round, end.fleet, self.rounds)
        if self.measuring.every != "auto" or self.said or (now.every == 1 and now.share == 1):
            return
        self.said = True
        rounds = f"every {now.every} rounds" if now.every > 1 else "every round"
        sample = f" on {100 * now.share:.2g} % of the test data, the last one on all" if now.share < 1 else ""
        self.say(
            f"evaluation would take over 25 % of the training time: from round {end.state.round} on it is done {rounds}"
            f"{sample}; set measure.every = 1 to evaluate every round on all test data"
        )


@dataclass(kw_only=True)
class UndefinedWatch:
    """A watcher that says, once each, which metrics of a measured round have no value anywhere."""

    measuring: Measuring
    say: Callable[[str], None]
    said: set[str] = field(default_factory=set)

    def __call__(self, end: RoundEnd) -> None:
        found = {base_name(m.metric) for m in end.measurements}
        for m in self.measuring.told if found else ():
            if m.name not in found | self.said:
                self.said.add(m.name)
                self.say(
                    f"round {end.state.round}: {m.name} has no value: the data do not define it, or it is infinite"
                )


def check_private_measure(measuring: Measuring, method: Method, fleet: Fleet) -> None:
    """At real sites a private run asks nobody how good a model is on its own data, unless that has noise, too."""
    open_to_all = method.gather is each_reply or getattr(method.gather, "shows_each", False)
    if fleet.simulated or open_to_all or not (measuring.local_test or measuring.fine_tune):
        return
    if getattr(method.gather, "evaluations", None) is None:
        raise UserError(
            "measure.local_test would show the server how good a model is on every site's data, exactly; set "
            "private.evaluations = EPSILON, or measure.local_test = false"
        )
    if not leaves_all_as_sent(method, fleet.layout):
        raise UserError(
            f"private.evaluations has noise for one test sample; clients of {method.name} use models that they trained "
            "at home, and how good these are would tell of their training samples, too; set measure.local_test = false"
        )


def scores(method: Method, state: State, fleet: Fleet) -> dict[str, float]:
    """Every overall number of a state by its name, e.g. "local-test/accuracy-mean".

    Args:
        method: the method that made the state.
        state: the state to measure.
        fleet: its clients.

    Returns:
        Name -> value.

    Examples:
        >>> from covey.methods.baselines import fedavg
        >>> data = covey.federate(covey.load("digits"), partition="iid", clients=5, seed=0)
        >>> fleet = covey.LocalFleet(data, covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10))
        >>> method = fedavg(covey.Train(), per_round=5)
        >>> found = covey.scores(method, covey.run_rounds(method, fleet, rounds=2), fleet)
        >>> 0 <= found["local-test/accuracy-mean"] <= 1
        True
    """
    found = Measuring()(method, state, fleet, True)
    return {f"{m.split}/{m.metric}": m.value for m in found if m.client == -1 and m.group == -1}


def on_global_test(
    state: State, fleet: Fleet, told: tuple[Metric, ...] = (), share: float = 1.0
) -> list[Measurement]:
    """Every row on the server's test set (equal ones once); of several, each (as a group) and their mean.

    `share`: of the test samples, always the same ones.
    """
    rows = state.models
    first: dict[bytes, int] = {}
    same_as = [first.setdefault(_fingerprint(row), number) for number, row in enumerate(rows)]
    tasks = {server_client(r): Task(models=rows[r : r + 1], slots=(r,)) for r in first.values()}
    replied = fleet.ask(Evaluate(metrics=told, share=share), tasks, measure=True)
    answers = {reply.slot: values_in(reply.stats) for reply in replied}
    if tasks and not answers:
        raise not_measurable(fleet, state.round)
    replies = {r: answers[same] for r, same in enumerate(same_as) if same in answers}
    found = []
    for metric in dict.fromkeys(name for stats in replies.values() for name in stats):
        values = {r: stats[metric] for r, stats in replies.items() if metric in stats}
        mean = float(np.mean(list(values.values())))
        found.append(Measurement(split="global-test", metric=metric, value=mean))
        if len(values) > 1:
            found += [
                Measurement(split="global-test", metric=metric, value=value, group=r)
                for r, value in values.items()
            ]
    return found


def _fingerprint(row: Tensor) -> bytes:
    """Equal for equal rows: where everybody holds the same model, it is measured once."""
    return hashlib.sha256(np.ascontiguousarray(row.numpy()).data).digest()


def on_local_tests(
    method: Method,
    state: State,
    fleet: Fleet,
    whom: Literal["all", "trained"] = "all",
    told: tuple[Metric, ...] = (),
    *,
    fine_tune: int = 0,
    share: float = 1.0,
    least: int = 1,
) -> list[Measurement]:
    """Every client that the method serves (or those of them that trained in the round), on its own test data.

    `fine_tune`: after that many local updates of the model that serves it. `share`: of all test data, always the same
    ones: those of some clients where they are many or train first, and some of each client's. `least`: a client with
    fewer test samples counts in the weighted mean only.
    """
    split = "tuned-test" if fine_tune else "local-test"
    asked = set(state.worked if whom == "trained" else state.seen)
    members = [i for i in fleet.members() if i in asked]
    fewest = LEAST_ADAPTED if method.adapt is not None else LEAST_CLIENTS
    some = max(math.ceil(share * len(members)), min(len(members), fewest))
    of_each = min(1.0, share * len(members) / max(1, some))
    members = [members[i * len(members) // some] for i in range(some)]
    tasks = served(method, state, fleet, members)
    if fine_tune:
        tasks = {i: replace(task, args={}) for i, task in tasks.items()}
    answers = fleet.ask(using(method, told, fine_tune, of_each), tasks, measure=True)
    if tasks and not answers and fleet.simulated:
        raise not_measurable(fleet, state.round, "the clients' own test data")
    everybody = [replace(reply, stats=measured(reply)) for reply in answers if reply.size]
    known = Metrics.of(fleet.objective, told)
    found: list[Measurement] = []
    for metric in dict.fromkeys(name for reply in everybody for name in reply.stats):
        replies = [reply for reply in everybody if metric in reply.stats]
        for reply in replies:
            found.append(
                Measurement(
                    split=split,
                    metric=metric,
                    value=float(reply.stats[metric]),
                    client=reply.id,
                    group=state.groups.get(reply.id, -1),
                )
            )
        found += [
            Measurement(split=split, metric=f"{metric}-{name}", value=value)
            for name, value in over_clients(replies, known[metric], least).items()
        ]
        for group, part in by_group(replies, state.groups).items():
            values = over_clients(part, known[metric])
            found += [
                Measurement(split=split, metric=f"{metric}-{name}", value=values[name], group=group)
                for name in ("mean", "weighted")
            ]
    return found


def measured(reply: Reply) -> dict[str, float]:
    """The numbers of an evaluation, without what it cost the client to tell them."""
    return {name: value for name, value in values_in(reply.stats).items() if name != "epsilon"}


def using(method: Method, told: tuple[Metric, ...], fine_tune: int = 0, share: float = 1.0) -> Step:
    """How a client uses the row that serves it: as it is, or after training it at home, `fine_tune` times.

    It is scored on a `share` of the client's test data; where scores have noise for one sample of all of them, on all.
    """
    tuned = Serving(adapt=training_of(method.local), updates=fine_tune) if fine_tune else None
    serving = tuned or Serving.of(method)
    epsilon = getattr(method.gather, "evaluations", None)
    if epsilon is not None:
        return NoisyEvaluate(epsilon=epsilon, own=serving.own, adapt=serving.adapt, updates=serving.updates)
    if serving.own:
        return EvaluateOwn(metrics=told, share=share)
    if serving.adapt is None:
        return Evaluate(metrics=told, share=share)
    return EvaluateAdapted(train=serving.adapt, metrics=told, updates=serving.updates, share=share)


def training_of(step: Step) -> Train:
    """The plain training behind a local step: the step itself, or what it says its `train` is."""
    train = step if isinstance(step, Train) else getattr(step, "train", None)
    if not isinstance(train, Train):
        raise UserError(f"measure.fine_tune needs a method whose clients train; {step.kind} does not say how")
    return train


def over_clients(replies: Sequence[Reply], metric: Metric, least: int = 1) -> dict[str, float]:
    """The clients' values combined as the metric says; one with fewer than `least` samples is in `weighted` only."""

    def told_by(some: Sequence[Reply]) -> dict[str, float]:
        return metric.over_clients([float(r.stats[metric.name]) for r in some], [r.size for r in some])

    enough = [reply for reply in replies if reply.size >= least]
    weighted = told_by(replies)["weighted"]
    return {**told_by(enough), "weighted": weighted} if enough else {"weighted": weighted}


def by_group(replies: Sequence[Reply], groups: Mapping[int, int]) -> dict[int, list[Reply]]:
    """The replies of each group, where there are groups."""
    parts: dict[int, list[Reply]] = {}
    for reply in replies:
        if reply.id in groups:
            parts.setdefault(groups[reply.id], []).append(reply)
    return dict(sorted(parts.items()))
