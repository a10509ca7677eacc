"""The local engine: what is booked, what is refused, who is lost, how long it takes."""

import gc
import os
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from covey.core import Client, Reply, Step, Task, run_rounds, server_client
from covey.core.round import empty_state, one_round, open_round
from covey.data import federate, load
from covey.errors import Refused, RunError, UserError
from covey.fleet.bookkeeping import check_reply
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.executors import Threads
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring
from covey.parts.steps import Evaluate, Train
from covey.testing import Broken, small_federation, small_fleet
from covey.training.models import build
from covey.training.rows import Layout, fresh_row, read_row

TRAIN = Train(lr=0.1, batch=16)
ROW = 4 * 4810  # bytes of the small model


@dataclass(frozen=True)
class Says(Step):
    """A step that does what it is told."""

    what: str
    kind: ClassVar[str] = "query.says"

    def __call__(self, client: Client, task: Task) -> Reply:
        if self.what == "refuse":
            raise Refused("the budget is spent")
        if self.what == "mistake":
            raise UserError("labels must be whole numbers")
        return Reply(id=client.id + (self.what == "wrong id"), stats={"state": client.state.get("n", 0)})

    def work(self, train: int, test: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Short(Step):
    kind: ClassVar[str] = "train.short"

    def __call__(self, client: Client, task: Task) -> Reply:
        return Reply(id=client.id, vector=torch.zeros(3 if client.id else 4810), size=1, stats={"batches": 1})

    def work(self, train: int, test: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Dies(Step):
    kind: ClassVar[str] = "query.dies"

    def __call__(self, client: Client, task: Task) -> Reply:
        if client.id == 3:
            os._exit(1)
        return Reply(id=client.id)

    def work(self, train: int, test: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Collects(Step):
    kind: ClassVar[str] = "query.collects"

    def __call__(self, client: Client, task: Task) -> Reply:
        gc.collect()
        return Reply(id=client.id)

    def work(self, train: int, test: int) -> float:
        return 0.0


class Waits:
    """Garbage that can be freed only where it was made, as what has threads of its own."""

    def __init__(self) -> None:
        self.itself, self.made_by = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.made_by:
            os._exit(1)


def everybody(fleet: LocalFleet, step: object, **task: object) -> list[Reply]:
    return fleet.ask(step, dict.fromkeys(fleet.begin(1), Task(**task)))  # type: ignore[arg-type]


def test_a_round_of_fedavg_costs_a_row_each_way() -> None:
    fleet = small_fleet()
    run_rounds(fedavg(TRAIN, per_round=3), fleet, rounds=2)
    cost = fleet.ledger.total["train.sgd"]
    stats = 2 * 8  # loss and number of batches
    assert cost.messages == 2 * 3 * 2
    assert cost.bytes_down == 2 * 3 * ROW
    assert cost.bytes_up == 2 * 3 * (ROW + stats)


@dataclass(frozen=True)
class Prototypes(Step):
    """FedProto: the model stays, the mean of every class in 64 features goes to the server."""

    kind: ClassVar[str] = "train.prototypes"

    def __call__(self, client: Client, task: Task) -> Reply:
        means = np.zeros((10, 64), dtype=np.float32)
        stats = {"loss": 0.5, "batches": 1, "means": means, "counts": [1] * 10}
        return Reply(id=client.id, vector=task.models[0], size=1, stats=stats)

    def work(self, train: int, test: int) -> float:
        return 0.0


def test_of_an_answer_that_stays_the_statistics_are_booked() -> None:
    fleet = small_fleet()
    everybody(fleet, Prototypes(), models=torch.zeros(1, 4810), slots=(0,), held=(0,), keep=True)
    cost = fleet.ledger.total["train.prototypes"]
    assert cost.bytes_up == 8 * (10 * 64 * 4 + 10 * 8)  # 2.6 kB of each of 8 clients; neither row nor log
    assert (cost.bytes_down, cost.messages) == (0, 8)


def test_where_all_of_an_answer_stays_nothing_is_booked() -> None:
    fleet = small_fleet()
    everybody(fleet, Short(), models=torch.zeros(1, 4810), slots=(0,), held=(0,), keep=True)
    cost = fleet.ledger.total["train.short"]
    assert (cost.bytes, cost.messages) == (0, 0)


def test_measuring_is_booked_apart_and_the_clock_stands_still() -> None:
    fleet = small_fleet()
    state = run_rounds(fedavg(TRAIN), fleet, rounds=1)
    clock, booked = fleet.ledger.clock, fleet.ledger.cost.bytes
    Measuring()(fedavg(TRAIN), state, fleet, True)
    assert fleet.ledger.clock == clock
    assert fleet.ledger.cost.bytes == booked
    assert fleet.ledger.measuring["evaluate.local"].bytes_down == 8 * ROW  # the server itself is free


def test_a_round_takes_as_long_as_its_slowest_client() -> None:
    devices = Devices(pace=0.001, special=({"clients": 2, "compute": 10.0}, {"clients": 4, "latency": 1.0}))
    fleet = small_fleet(devices=devices)
    sizes = [len(share.train) for share in fleet.data.shares]
    run_rounds(fedavg(replace(TRAIN, epochs=1), per_round=8), fleet, rounds=1)
    expected = max([0.001 * n for n in sizes] + [0.01 * sizes[2], 1.0 + 0.001 * sizes[4]])
    assert fleet.ledger.clock == pytest.approx(expected)


def test_who_misses_the_deadline_is_lost_and_the_round_ends_at_it() -> None:
    devices = Devices(pace=0.0, deadline=2.0, special=({"clients": 3, "latency": 5.0},))
    fleet = small_fleet(devices=devices)
    run_rounds(fedavg(TRAIN, per_round=8), fleet, rounds=1)
    assert fleet.ledger.clock == pytest.approx(2.0)
    assert fleet.ledger.replied == 7
    assert "the deadline is 2.0 s" in fleet.ledger.examples("lost")[0].reason


@pytest.mark.parametrize("mode", ["serial", "threads", "processes"])
def test_an_exception_becomes_a_lost_reply_that_names_client_step_and_round(mode: str) -> None:
    fleet = small_fleet(mode=mode)
    method = replace(fedavg(TRAIN, per_round=8), local=Broken(step=TRAIN))  # type: ignore[arg-type]
    state = one_round(method, empty_state(fleet), fleet)
    fleet.close()
    assert torch.isfinite(state.models).all()
    (lost,) = fleet.ledger.examples("lost")
    assert (lost.client, lost.kind, lost.round) == (1, "train.sgd", 1)
    assert "broken on purpose" in lost.reason
    (refused,) = fleet.ledger.examples("refused")
    assert (refused.client, refused.reason) == (2, "its row holds NaN or infinity")


def test_debugging_raises_in_place() -> None:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10)
    fleet = LocalFleet(small_federation(), model, engine=Engine(debug=True, lanes=False))
    method = replace(fedavg(TRAIN, per_round=8), local=Broken(step=TRAIN))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="broken on purpose"):
        one_round(method, empty_state(fleet), fleet)


def test_when_nobody_is_left_the_run_ends_with_a_reason() -> None:
    fleet = small_fleet(devices=Devices(pace=1.0, deadline=0.001))
    with pytest.raises(RunError, match="none of 8 clients answered"):
        run_rounds(fedavg(TRAIN, per_round=8), fleet, rounds=1)


def test_a_refusal_is_counted_and_a_users_mistake_ends_the_run() -> None:
    fleet = small_fleet()
    assert everybody(fleet, Says("refuse")) == []
    assert fleet.ledger.refused == 8
    assert fleet.ledger.lost == 0
    assert everybody(fleet, Says("wrong id")) == []
    with pytest.raises(UserError, match="whole numbers"):
        everybody(fleet, Says("mistake"))


def test_a_row_of_the_wrong_shape_never_gets_in() -> None:
    fleet = small_fleet()
    run_rounds(replace(fedavg(TRAIN, per_round=8), local=Short()), fleet, rounds=1)
    assert fleet.ledger.refused == 7
    assert "its row has shape (3,), not (4810,)" in fleet.ledger.examples("refused")[0].reason


def test_a_worker_that_dies_is_replaced_and_its_client_is_lost() -> None:
    fleet = small_fleet(mode="processes")
    for _ in range(2):
        assert [reply.id for reply in everybody(fleet, Dies())] == [0, 1, 2, 4, 5, 6, 7]
    fleet.close()
    assert fleet.ledger.lost == 2


def test_a_worker_frees_nothing_that_it_inherits() -> None:
    gc.collect()
    gc.disable()
    try:
        Waits()
        fleet = small_fleet(mode="processes")
        assert len(everybody(fleet, Collects())) == 8
    finally:
        gc.enable()
    fleet.close()
    assert fleet.ledger.lost == 0


def test_evaluating_many_at_once_gives_what_each_alone_gives() -> None:
    fleet = small_fleet()
    state = run_rounds(fedavg(TRAIN), fleet, rounds=2)
    tasks = dict.fromkeys(range(8), Task(models=state.models, slots=(0,)))
    together = fleet.ask(Evaluate(), tasks, measure=True)
    alone = fleet.ask(Evaluate(), tasks)
    for a, b in zip(together, alone, strict=True):
        assert a.stats["accuracy"] == b.stats["accuracy"]
        assert a.stats["loss"] == pytest.approx(b.stats["loss"], rel=1e-5)


def test_the_desk_holds_the_global_test_set() -> None:
    fleet = small_fleet()
    fleet.begin(1)
    (reply,) = fleet.ask(
        Evaluate(), {server_client(0): Task(models=fleet.start()[None], slots=(0,))}, measure=True
    )
    assert reply.size == len(fleet.data.test)


def test_a_client_given_several_rows_works_on_the_best() -> None:
    fleet = small_fleet()
    good = run_rounds(fedavg(TRAIN, per_round=8), fleet, rounds=5).models[0]
    bad = torch.zeros_like(good)
    fleet.begin(6)
    (reply,) = fleet.ask(TRAIN, {0: Task(models=torch.stack([bad, good]), slots=(0, 1))})
    assert reply.slot == 1


def test_local_buffers_stay_at_the_client() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    fleet = LocalFleet(small_federation(), model, buffers="local", engine=Engine(mode="serial", lanes=False))
    run_rounds(fedavg(TRAIN, per_round=8), fleet, rounds=1)
    means = [fleet.states[i]["buffers"][:64] for i in range(8)]
    assert not torch.equal(means[0], means[1])


def test_momentum_can_outlive_the_round() -> None:
    fleet = small_fleet()
    run_rounds(fedavg(replace(TRAIN, momentum=0.9, keep_momentum=True), per_round=8), fleet, rounds=1)
    assert all(fleet.states[i]["velocity"].abs().sum() > 0 for i in range(8))


def test_everybody_present_is_fixed_once_a_round() -> None:
    fleet = small_fleet(devices=Devices(joins=({"clients": [6, 7], "round": 2},)))
    state = empty_state(fleet)
    assert open_round(state, fleet).here == [0, 1, 2, 3, 4, 5]
    assert open_round(replace(state, round=1), fleet).here == list(range(8))


def test_the_bound_on_memory_counts_data_bank_and_workers() -> None:
    fleet = small_fleet()
    data = fleet.data.dataset.x.nbytes + fleet.data.dataset.y.nbytes
    assert fleet.memory_bound() > data + 20 * ROW  # 8 clients: a model and a reply each, the bank four times
    assert fleet.memory_bound(own_models=True) == fleet.memory_bound() + 4 * 7 * ROW


@pytest.mark.parametrize(
    "train", [TRAIN, Train(lr=0.05, batch=32, momentum=0.9, weight_decay=0.01, prox=0.1, epochs=2)]
)
def test_a_cohort_gives_what_one_after_another_gives_up_to_rounding(train: Train) -> None:
    rows = [
        run_rounds(fedavg(train), small_fleet(mode=mode), rounds=2).models for mode in ("serial", "cohort")
    ]
    assert torch.allclose(*rows, atol=2e-6)
    assert not torch.equal(rows[0], small_fleet().start()[None])


def test_a_model_with_statistics_of_its_own_is_not_stacked() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    rows = []
    for mode in ("serial", "cohort"):
        engine = Engine(mode=mode, lanes=False)  # type: ignore[arg-type]
        rows.append(
            run_rounds(fedavg(TRAIN), LocalFleet(small_federation(), model, engine=engine), rounds=1).models
        )
    assert torch.equal(*rows)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": -1}, "its number of samples is -1"),
        ({"slot": 9}, "slot 9, which it was not sent"),
        ({"stats": {"loss": float("nan"), "batches": 1}}, "its loss is nan"),
        ({"vector": torch.zeros(4810, dtype=torch.float64)}, "not torch.float32"),
    ],
)
def test_a_reply_that_makes_no_sense_is_refused(change: dict[str, object], reason: str) -> None:
    fleet = small_fleet()
    fleet.begin(1)
    task = Task(models=fleet.start()[None], slots=(0,))
    good = Reply(id=0, vector=torch.zeros(4810), size=5, stats={"loss": 1.0, "batches": 1})
    assert check_reply(good, 0, TRAIN, task, fleet.layout) == ""
    assert reason in check_reply(replace(good, **change), 0, TRAIN, task, fleet.layout)  # type: ignore[arg-type]


def test_a_frozen_part_survives_a_new_start() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Linear(8, 10))
    model[1].requires_grad_(False)
    again = fresh_row(model, 0, 3)
    first = Layout.of(model).trainable  # frozen parameters come after the trainable ones
    assert torch.equal(again[first:], read_row(model)[first:])
    assert not torch.equal(again[:first], read_row(model)[:first])


def many_in(mode: str) -> LocalFleet:
    """A fleet of forty clients on lanes, in two threads or one after the other."""
    data = federate(load("digits"), partition="dir-class", clients=40, seed=3, alpha=0.5)
    network = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    return LocalFleet(data, network, engine=Engine(mode=mode, workers=2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "train", [TRAIN, replace(TRAIN, batches=2, momentum=0.5), replace(TRAIN, holdout=0.3)]
)
def test_threads_train_clients_phase_by_phase_with_the_bits_of_each_alone(train: Train) -> None:
    """Forty clients in two threads: groups of ten and fewer."""
    told = []
    for mode in ("serial", "threads"):
        fleet = many_in(mode)
        told.append(everybody(fleet, train, models=fleet.start()[None], slots=(0,)))
        fleet.close()
    for alone, phased in zip(*told, strict=True):
        assert alone.vector is not None
        assert phased.vector is not None
        assert torch.equal(alone.vector, phased.vector)
        assert (alone.id, alone.size, alone.stats) == (phased.id, phased.size, phased.stats)


@dataclass(frozen=True, kw_only=True)
class FailsAtThree(Train):
    """Training that client 3 cannot do, nor anybody in a group with it."""

    def drawn(self, client: Client) -> tuple[tuple[torch.Tensor, torch.Tensor], list[np.ndarray]]:
        if client.id == 3:
            raise ValueError("three")
        return super().drawn(client)


def test_who_fails_in_a_group_is_lost_alone() -> None:
    fleet = many_in("threads")
    replies = everybody(fleet, FailsAtThree(lr=0.1), models=fleet.start()[None], slots=(0,))
    assert [reply.id for reply in replies] == [i for i in range(40) if i != 3]
    fleet.close()


def test_threads_share_out_places_each_once_and_raise_what_went_wrong() -> None:
    """So the guard measures updates and the average adds up blocks of columns."""
    with_threads = small_fleet(mode="threads")
    threads = with_threads.executor
    assert isinstance(threads, Threads)
    done: list[int] = []
    threads.each(done.append, range(7))
    threads.each(done.append, [])
    assert sorted(done) == list(range(7))
    with pytest.raises(IndexError):
        threads.each(lambda place: [0, 1].__getitem__(place), range(3))
    with_threads.close()
