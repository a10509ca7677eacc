"""Nothing is measured twice, and what is looked up is what asking every client would have said."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from covey.core.ledger import Ledger
from covey.core.round import RoundEnd, Task, run_rounds
from covey.data.types import Samples, Shift
from covey.errors import UserError
from covey.fleet.evaluations import Evaluations, Scored
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg, local_only
from covey.parts import measure
from covey.parts.measure import FREE, Measuring, interval, seldom_measured
from covey.parts.steps import Train
from covey.parts.steps.evaluate import Evaluate
from covey.runs.config import resolve
from covey.runs.run import Interrupted, resume, run_config
from covey.testing import small_fleet
from covey.training.metrics import metric_named


class Counting:
    """Notes how many samples go through the model for measurements."""

    def __init__(self, fleet: LocalFleet) -> None:
        self.inner, self.samples = fleet.executor, 0
        fleet._executor = self

    def __call__(self, call: Any, jobs: Any) -> Any:
        if call.step.kind == "evaluate.samples":
            self.samples += sum(len(job.tasks[0].args["index"]) for job in jobs)
        assert call.step.kind != "evaluate.local" or not jobs
        return self.inner(call, jobs)

    def close(self) -> None:
        self.inner.close()


def from_the_pool(fleet: LocalFleet) -> bool:
    """Whether all local test samples are samples of the global test set."""
    return all(set(s.test.index) <= set(fleet.data.test.index) for s in fleet.data.shares)


def test_local_tests_drawn_from_the_global_one_cost_nothing_more() -> None:
    fleet, method = small_fleet(), fedavg(Train())
    counting = Counting(fleet)
    run_rounds(method, fleet, rounds=2, measure=Measuring())
    assert from_the_pool(fleet)
    assert counting.samples == 2 * len(fleet.data.test)


def test_what_is_remembered_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 40 bytes each, at most 100: what an earlier round asked for goes first, then the oldest of this one."""
    monkeypatch.setattr("covey.fleet.evaluations.KEPT_BYTES", 100)
    known = Evaluations()
    one = Scored(np.arange(5), {})
    known.before = {(b"old", Shift(), False): one}
    known.now = {(bytes([k]), Shift(), False): one for k in range(2)}
    known._forget()
    assert (len(known.before), len(known.now)) == (0, 2)
    known.now = {(bytes([k]), Shift(), False): one for k in range(6)}
    known._forget()
    assert [key[0][0] for key in known.now] == [4, 5]
    known.now = {(b"large", Shift(), False): Scored(np.arange(50), {})}
    known._forget()
    assert len(known.now) == 1, "the last one is kept however large it is"


def test_what_is_forgotten_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sum over all that are left for each that goes: a ring of 100,000 clients did not end."""
    monkeypatch.setattr("covey.fleet.evaluations.KEPT_BYTES", 0)
    looked = 0

    class Looked(Scored):
        @property
        def nbytes(self) -> int:
            nonlocal looked
            looked += 1
            return 1

    known = Evaluations()
    one = Looked(np.arange(5), {})
    known.now = {(k.to_bytes(4, "big"), Shift(), False): one for k in range(1000)}
    known._forget()
    assert len(known.now) == 1
    assert looked < 3 * 1000


def test_rows_that_did_not_change_are_not_run_again() -> None:
    fleet, method = small_fleet(), fedavg(Train())
    state = run_rounds(method, fleet, rounds=1)
    counting, measuring = Counting(fleet), Measuring()
    first = measuring(method, state, fleet, True)
    fleet.books.round += 1  # the next round changes nothing
    again = measuring(method, state, fleet, True)
    assert counting.samples == len(fleet.data.test)
    assert [m.value for m in first] == [m.value for m in again]


@pytest.mark.parametrize("metrics", [(), ("macro-f1",)])
def test_what_is_looked_up_is_what_a_client_answers_alone(metrics: tuple[str, ...]) -> None:
    fleet, method = small_fleet(), local_only(Train(lr=0.1))
    state = run_rounds(method, fleet, rounds=1)
    step = Evaluate(metrics=tuple(metric_named(name, name) for name in metrics))
    tasks = {i: Task(models=state.models[i : i + 1], slots=(i,)) for i in range(4)}
    looked_up = fleet.ask(step, tasks, measure=True)
    alone = fleet.ask(step, tasks)
    assert [(r.id, r.slot, r.size, dict(r.stats)) for r in looked_up] == [
        (r.id, r.slot, r.size, dict(r.stats)) for r in alone
    ]


def test_the_work_of_measuring_is_counted_in_samples_trained() -> None:
    fleet, method = small_fleet(), fedavg(Train())
    run_rounds(method, fleet, rounds=3, measure=Measuring())
    assert fleet.ledger.work_measuring == pytest.approx(3 * len(fleet.data.test) / 3)
    assert (fleet.ledger.times_measured, fleet.ledger.last_measured) == (3, 3)
    again = Ledger()
    again.load(fleet.ledger.save())
    assert (again.work, again.work_measuring) == (fleet.ledger.work, fleet.ledger.work_measuring)


def made_up(*, measuring: float, training: float, times: int, parameters: int = 61_706) -> Any:
    ledger = Ledger(work=training, work_measuring=measuring, times_measured=times, last_measured=times)
    return SimpleNamespace(ledger=ledger, layout=SimpleNamespace(size=parameters))


def test_measuring_becomes_seldom_where_it_is_more_than_a_fifth_of_training() -> None:
    # 10,000 test samples are 3333 trained ones; with 6000 trained per round they are 56 % of training, every third
    # round 19 %: 1111 / 6000.
    mnist = made_up(measuring=10 * 10_000 / 3, training=10 * 6000.0, times=10)
    assert interval(mnist, 10) == 3
    # 18,000 trained: 19 % of training.
    assert interval(made_up(measuring=33_333.0, training=180_000.0, times=10), 10) == 1
    # Below the free amount nobody minds.
    assert interval(made_up(measuring=0.99 * FREE / 5000, training=1.0, times=1, parameters=5000), 1) == 1
    auto = Measuring(every="auto")
    assert not auto.pace(13, mnist).due
    assert auto.pace(14, mnist).due  # with the same work in 14 rounds, every fourth


def test_a_curve_has_twenty_points_on_a_sample_where_all_test_data_would_cost_too_much() -> None:
    # 3333 to measure, 600 trained per round: all test data every 28 rounds. Of 100 rounds every fifth is measured, on
    # 5 * 0.2 * 600 / 3333 = 18 % of the test data.
    auto, costly = Measuring(every="auto"), made_up(measuring=33_333.0, training=6000.0, times=10)
    now = auto.pace(10, costly, 100)
    assert (now.every, now.share) == (5, pytest.approx(0.18, abs=1e-4))
    # 1000 rounds: every 28th on all is 35 points.
    assert (auto.pace(10, costly, 1000).every, auto.pace(10, costly, 1000).share) == (28, 1.0)
    # Once chosen, the sample is the same for the rest of the run.
    costly.ledger.sample, costly.ledger.work = 0.3, 60_000.0
    assert (auto.pace(15, costly, 100).every, auto.pace(15, costly, 100).share) == (5, 0.3)
    again = Ledger()
    again.load(costly.ledger.save())
    assert again.sample == 0.3


def test_a_run_with_little_training_has_a_curve_and_its_last_point_is_on_all(monkeypatch: Any) -> None:
    monkeypatch.setattr(measure, "FREE", 0.0)
    fleet, method = small_fleet(), fedavg(Train(batches=1, batch=1), per_round=1)
    counting, found = Counting(fleet), {}
    state = run_rounds(
        method,
        fleet,
        rounds=60,
        measure=partial(Measuring(every="auto"), rounds=60),
        watchers=[lambda end: found.setdefault(end.state.round, end.measurements)],
    )
    points = [round for round, measured in found.items() if measured]
    assert (len(points), points[0], points[-1]) == (21, 1, 60)
    assert 0 < fleet.ledger.sample < 0.1
    assert counting.samples < 3 * len(fleet.data.test)  # 22 measurements on all would be 22 times as many
    last = {m.metric: m.value for m in found[60] if m.split == "global-test"}
    assert last == {m.metric: m.value for m in measure.on_global_test(state, fleet)}
    clients = {m.client for m in found[points[5]] if m.split == "local-test" and m.client >= 0}
    assert clients == set(range(8))  # so few clients are all asked, each about some of its samples


def test_a_run_is_measured_seldom_only_where_no_round_matters() -> None:
    assert seldom_measured({"rounds": 5})["measure"] == {"every": "auto"}
    assert seldom_measured({"measure": {"whom": "trained"}})["measure"] == {
        "whom": "trained",
        "every": "auto",
    }
    for tables in ({"measure": {"every": 3}}, {"target": 0.9}, {"stop": {"patience": 3}}):
        assert seldom_measured(tables) == tables


def test_how_often_is_a_number_or_auto() -> None:
    with pytest.raises(UserError, match=r"measure\.every is 'often'"):
        Measuring(every="often")  # type: ignore[arg-type]


def test_samples_of_a_shift_are_not_those_without_it() -> None:
    fleet, method = small_fleet(), fedavg(Train())
    state = run_rounds(method, fleet, rounds=1)
    index = fleet.data.test.index[:4]
    plain, rotated = (
        Samples(fleet.data.dataset, index, s)
        for s in (fleet.data.test.shift, fleet.data.test.shifted(_rotated(fleet)).shift)
    )
    assert not torch.equal(plain.tensors()[0], rotated.tensors()[0])
    views = {-1: plain, 0: rotated}
    fleet.client_data = SimpleNamespace(  # type: ignore[assignment]
        test=lambda i, _: views[i], train=fleet.client_data.train, sizes=lambda _: (4, 4)
    )
    fleet.close()
    tasks = {i: Task(models=state.models, slots=(0,)) for i in views}
    found = {r.id: r.stats["loss"] for r in fleet.ask(Evaluate(), tasks, measure=True)}
    alone = {r.id: r.stats["loss"] for i in views for r in fleet.ask(Evaluate(), {i: tasks[i]})}
    assert found == alone
    assert not np.isclose(found[-1], found[0])


def _rotated(fleet: LocalFleet) -> Any:
    from dataclasses import replace

    return replace(fleet.data.test.shift, rotations=1)


def test_a_resumed_run_measures_the_rounds_that_a_straight_one_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "covey.parts.measure.FREE", 0.0
    )  # from the first measurement on, measuring may cost too much
    monkeypatch.setattr("covey.parts.measure.POINTS", 4)
    tables = {
        "rounds": 9,
        "checkpoint_seconds": 0.0,
        "data": {"name": "digits", "clients": 30},
        "model": {"name": "softmax"},
        "method": {"name": "fedavg", "per_round": 2},
        "train": {"epochs": 1},
        "measure": {"every": "auto"},
        "engine": {"mode": "serial"},
    }

    def stop(end: RoundEnd) -> None:
        if end.state.round == 4:  # between two measured rounds
            raise KeyboardInterrupt

    straight = run_config(resolve(tables), tmp_path / "straight", report=False)
    with pytest.raises(Interrupted):
        run_config(resolve(tables), tmp_path / "stopped", watchers=[stop], report=False)
    resumed = resume(tmp_path / "stopped", report=False)

    rounds = []
    for done in (straight, resumed):
        table = pq.read_table(done.folder / "metrics.parquet").to_pylist()
        rounds.append([(row["round"], row["value"]) for row in table if row["split"] == "global-test"])
    assert rounds[0] == rounds[1]  # on the same sample
    assert sorted({round for round, _ in rounds[0]}) == [1, 3, 5, 7, 9]
    assert torch.equal(straight.state.models, resumed.state.models)
