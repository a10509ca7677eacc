"""One client's answer neither ends nor spoils a round; what every client would do again is said at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

from covey.core import Client, Method, Reply, Round, Step, Task, run_rounds
from covey.core.checks import fewest
from covey.core.round import empty_state, one_round
from covey.errors import RunError, SilentRoundError, SpoiledRunError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.guard import Guard
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring, scores
from covey.parts.mix.average import Average
from covey.parts.steps import Train
from covey.parts.steps.poison import Poisoned
from covey.runs.config import resolve
from covey.testing import CLIENTS, small_federation, small_fleet
from covey.training.models import build

TRAIN = Train(epochs=1, lr=0.1, batch=16)
FEDAVG = fedavg(TRAIN, per_round=CLIENTS)


@dataclass(frozen=True)
class Tell(Step):
    """A question of one's own, without a range: everybody tells its number, client 5 the word "five"."""

    kind: ClassVar[str] = "query.number"

    def __call__(self, client: Client, task: Task) -> Reply:
        return Reply(id=client.id, stats={"number": "five" if client.id == 5 else client.id})

    def work(self, train: int, test: int) -> float:
        return 0.0


def by_number(now: Round) -> dict[int, int]:
    """Even and odd; fails over a number that is none."""
    return {reply.id: int(reply.stats["number"]) % 2 for reply in now.ask(Tell(), now.here)}


@dataclass(frozen=True)
class Fussy:
    """An average that fails over the replies of some clients, after it has asked everybody once more."""

    over: tuple[int, ...]

    def __call__(self, now: Round) -> Any:
        now.memory["asked"] = now.memory.get("asked", 0) + 1
        now.ask(Tell(), [0])
        if set(self.over) & {reply.id for reply in now.replies}:
            raise ZeroDivisionError("no way")
        return Average()(now)


def refused(fleet: LocalFleet) -> list[tuple[int, str]]:
    return [(one.client, one.reason) for one in fleet.ledger.examples("refused")]


def test_a_part_that_fails_over_one_answer_goes_on_without_it() -> None:
    fleet = small_fleet()
    state = one_round(replace(FEDAVG, group=by_number), empty_state(fleet), fleet)
    assert dict(state.groups) == {i: i % 2 for i in range(CLIENTS) if i != 5}
    ((client, reason),) = refused(fleet)
    assert client == 5
    assert "ValueError: invalid literal" in reason


@pytest.mark.parametrize("culprit", [0, 3, CLIENTS - 1])
def test_a_mix_that_fails_over_one_reply_is_that_of_the_others(culprit: int) -> None:
    fleet = small_fleet()
    fleet.books.guard = Guard(norm=0)  # which shortens beside all who answered, the culprit too
    state = one_round(replace(FEDAVG, mix=Fussy((culprit,))), empty_state(fleet), fleet)
    honest = small_fleet()
    honest.books.guard = Guard(norm=0)
    others = replace(FEDAVG, select=lambda _: [i for i in range(CLIENTS) if i != culprit])
    assert torch.equal(state.models, one_round(others, empty_state(honest), honest).models)
    assert culprit not in state.worked
    assert state.memory["asked"] == 1  # what failed left nothing behind
    assert fleet.ledger.total["query.number"].messages == 2  # nobody was asked twice
    assert [client for client, _ in refused(fleet)] == [culprit]


@pytest.mark.parametrize("culprits", [(0, 1), (2, 6), (0, 3, 7)])
def test_several_whose_replies_a_mix_fails_over_are_all_left_out(culprits: tuple[int, ...]) -> None:
    fleet = small_fleet()
    state = one_round(replace(FEDAVG, mix=Fussy(culprits)), empty_state(fleet), fleet)
    assert set(state.worked) == set(range(CLIENTS)) - set(culprits)
    assert state.memory["asked"] == 1
    assert [client for client, _ in refused(fleet)] == list(culprits)


def test_the_fewest_are_found_without_asking_everybody() -> None:
    tries: list[frozenset[int]] = []

    def works(without: frozenset[int]) -> bool:
        tries.append(without)
        return {17, 18, 900} <= without

    assert fewest(range(1000), works) == {17, 18, 900}
    assert len(tries) <= 60
    assert fewest(range(1000), lambda _: False) == set(range(1000))  # nobody's doing


def test_a_stranger_who_is_asked_alone_silences_no_round() -> None:
    """Who told nothing useful is asked again in every round, alone; the others train meanwhile."""

    def once(now: Round) -> dict[int, int]:
        strangers = [client for client in now.here if client not in now.groups]
        return now.groups | {reply.id: int(reply.stats["number"]) for reply in now.ask(Tell(), strangers)}

    fleet = small_fleet()
    state = run_rounds(replace(FEDAVG, group=once), fleet, rounds=6, patience=0)
    assert len(state.worked) == CLIENTS
    assert [client for client, _ in refused(fleet)] == [5] * 6


def test_the_only_answer_of_a_round_ends_no_run() -> None:
    """Whom a mix fails over is refused though nobody else has answered; the next round is with others."""
    fleet = small_fleet()
    method = replace(FEDAVG, mix=Fussy((5,)), select=lambda now: [4 + now.number])
    state = run_rounds(method, fleet, rounds=3)
    assert state.round == 3
    assert [client for client, _ in refused(fleet)] == [5]


def test_two_who_are_alone_in_a_round_with_nonsense_end_no_run() -> None:
    method = replace(
        FEDAVG,
        local=Poisoned(local=TRAIN, clients=(2, 3), attack="nan"),
        select=lambda now: {2: [2, 3], 3: [2]}.get(now.number, [0, 1, 4]),
    )
    fleet = small_fleet()
    state = run_rounds(method, fleet, rounds=4)
    assert state.worked == (0, 1, 4)
    assert [client for client, _ in refused(fleet)] == [2, 3, 2]


def test_a_part_with_a_fault_of_its_own_fails_as_it_is() -> None:
    fleet = small_fleet()
    with pytest.raises(ZeroDivisionError, match="no way"):
        one_round(replace(FEDAVG, mix=Fussy(tuple(range(CLIENTS)))), empty_state(fleet), fleet)


def test_debugging_raises_in_place() -> None:
    fleet = LocalFleet(
        small_federation(),
        build("mlp", input_shape=(1, 8, 8), outputs=10),
        engine=Engine(debug=True, lanes=False),
    )
    with pytest.raises(ZeroDivisionError):
        one_round(replace(FEDAVG, mix=Fussy((3,))), empty_state(fleet), fleet)


# ---------------------------------------------------------------------------------------------- mistakes


def test_training_that_is_finite_nowhere_is_said_in_the_first_round() -> None:
    method = replace(FEDAVG, local=Poisoned(local=TRAIN, clients=tuple(range(CLIENTS)), attack="nan"))
    with pytest.raises(
        SpoiledRunError, match=r"round 1: training diverges.*all 8 clients.*lower train.lr \(0\.1\)"
    ):
        run_rounds(method, small_fleet(), rounds=5)


def test_a_loss_beyond_all_measure_is_said_in_the_first_round_too() -> None:
    """With a learning rate of a million the losses are still numbers, of fifteen digits."""
    with pytest.raises(
        SpoiledRunError,
        match=r"round 1: training diverges: the loss of all \d clients that answered is .* or more",
    ):
        run_rounds(fedavg(replace(TRAIN, lr=1e6), per_round=CLIENTS), small_fleet(), rounds=5)


@pytest.mark.parametrize("name", ["oort", "scaffold", "cbcc-select", "centralized"])
@pytest.mark.parametrize("lr", [1e6, 1e9])
def test_so_is_a_loss_that_is_no_number_here_and_too_large_there(name: str, lr: float) -> None:
    config = resolve({"method": {"name": name}, "train": {"lr": lr}})
    with pytest.raises(SpoiledRunError, match=r"round 1: training diverges"):
        run_rounds(config.method, small_fleet(), rounds=5)


def test_a_model_without_finite_scores_is_said_and_not_left_out() -> None:
    fleet, method = small_fleet(), replace(FEDAVG, select=lambda _: [0])
    state = run_rounds(method, fleet, rounds=1)
    broken = replace(state, models=torch.full_like(state.models, 1e30))
    with pytest.raises(RunError, match="round 1: on the global test set the loss is nan: training diverges"):
        scores(method, broken, fleet)


def test_a_step_that_fails_at_every_client_is_no_drop_out() -> None:
    class Failing(Train):
        def __call__(self, client: Client, task: Task) -> Reply:
            raise IndexError("there is no such sample")

    with pytest.raises(
        RunError,
        match=r"round 1: train.sgd fails at every client that was asked for it \(8\).*no such sample",
    ):
        run_rounds(replace(FEDAVG, local=Failing(lr=0.1)), small_fleet(), rounds=9)


# ---------------------------------------------------------------------------------------------- silence


def silent_in(*rounds: int) -> tuple[Method, LocalFleet]:
    """FedAvg, and a fleet in whose rounds of these numbers every device is too late."""
    fleet = small_fleet()

    def everybody(now: Round) -> list[int]:
        fleet.devices = Devices(pace=1.0, deadline=0.001 if now.number in rounds else None)
        return list(now.here)

    return replace(FEDAVG, select=everybody), fleet


def test_rounds_without_an_answer_pass() -> None:
    seen: list[tuple[int, int]] = []
    state = run_rounds(
        *silent_in(2, 3, 5),
        rounds=6,
        patience=2,
        watchers=[lambda end: seen.append((end.state.round, len(end.state.worked)))],
    )
    assert seen == [(1, 8), (2, 0), (3, 0), (4, 8), (5, 0), (6, 8)]
    assert state.round == 6


def test_more_of_them_in_a_row_than_patience_end_the_run() -> None:
    with pytest.raises(SilentRoundError, match="round 4: none of 8 clients answered"):
        run_rounds(*silent_in(2, 3, 4), rounds=6, patience=2)


def test_when_nobody_ever_answers_the_run_has_not_succeeded() -> None:
    with pytest.raises(SilentRoundError, match="round 2: none of 8"):
        run_rounds(*silent_in(1, 2), rounds=2, measure=Measuring())


# ---------------------------------------------------------------------------------------------- spoiled


def test_who_spoiled_an_unguarded_run_is_named() -> None:
    """With the guard off a row of 1e33 is averaged in; the next round has no finite loss."""
    fleet = small_fleet()
    fleet.books.guard = Guard(norm=0)
    method = replace(FEDAVG, local=Poisoned(local=TRAIN, clients=(3,), attack="scale", factor=1e35))
    with pytest.raises(SpoiledRunError, match="In round 1 the update of client 3 was") as caught:
        run_rounds(method, fleet, rounds=3)
    assert caught.value.round == 2


def test_a_bank_that_is_not_finite_is_never_kept() -> None:
    def broken(now: Round, rows: torch.Tensor) -> torch.Tensor:
        return rows * float("inf")

    with pytest.raises(SpoiledRunError, match="round 1: the new models hold NaN or infinity"):
        run_rounds(replace(FEDAVG, update=broken), small_fleet(), rounds=2)


def test_the_guard_keeps_the_same_run_going() -> None:
    fleet = small_fleet()
    method = replace(FEDAVG, local=Poisoned(local=TRAIN, clients=(3,), attack="scale", factor=1e35))
    state = run_rounds(method, fleet, rounds=2)
    others: Mapping[int, Any] = dict.fromkeys(state.worked)
    assert 3 not in others
    assert {client for client, _ in refused(fleet)} == {3}


# ---------------------------------------------------------------------------------------- a method's own mistakes


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (
            {"update": lambda _, rows: rows.double()},
            r"the new models are torch.float64; allowed: rows.detach",
        ),
        ({"update": lambda _, rows: rows.long()}, r"the new models are torch.int64"),
        (
            {"update": lambda _, rows: rows.clone().requires_grad_()},
            "the new models are attached to a gradient",
        ),
        (
            {"update": lambda _, rows: rows[:, :3]},
            r"the new models are of shape \(1, 3\); allowed: a tensor \(models",
        ),
        ({"update": lambda _, rows: rows[0]}, r"the new models are of shape \(\d+,\)"),
        ({"update": lambda _, rows: rows[:0]}, r"the new models are of shape \(0, \d+\)"),
        ({"update": lambda *_: None}, "the new models are a NoneType"),
        ({"update": lambda _, rows: rows.numpy()}, "the new models are a ndarray"),
        ({"mix": None, "combine": lambda _: [1.0]}, "the new models are a list"),
        ({"mix": lambda _: 3}, "mix gives a int; it must give a Mixing"),
        ({"select": lambda _: [0, 99]}, r"select names 99; it must give a list of clients that are here"),
        ({"select": lambda _: ["a"]}, "select names 'a'; it must give a list of clients"),
        ({"select": lambda _: None}, "select names None; it must give a list of clients"),
    ],
)
def test_what_a_method_gives_in_place_of_clients_or_models_is_one_sentence(
    part: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RunError, match=f"method fedavg: {sentence}"):
        run_rounds(replace(FEDAVG, **part), small_fleet(), rounds=2)


def test_whom_a_method_selects_may_come_one_by_one() -> None:
    found = [
        run_rounds(replace(FEDAVG, select=select), small_fleet(), rounds=1)
        for select in (lambda now: now.here, lambda now: (i for i in now.here))
    ]
    assert torch.equal(found[0].models, found[1].models)


def test_a_method_that_chooses_nobody_is_named() -> None:
    with pytest.raises(SilentRoundError, match="round 4: method fedavg chose none of 8 clients"):
        run_rounds(replace(FEDAVG, select=lambda _: []), small_fleet(), rounds=9)
