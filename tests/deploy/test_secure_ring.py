"""SecAgg+ on a sparse graph, with Flower's primitives: the same sum, drop-outs up to the threshold, fewer bytes."""

import secrets
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from covey.core import Client, Reply, Step, Task
from covey.core.ledger import Ledger
from covey.errors import Refused
from covey.privacy.secure import masked_sum, plain_sum
from covey.privacy.secure_steps import NUMBER_LEVELS, SecureShares, SecureUnmask, SecureUpdate

CLIENTS, COLUMNS = 12, 5


@dataclass(frozen=True)
class Moves(Step):
    """An update that only depends on who makes it; the first and the last go to the borders of the clip range."""

    kind: ClassVar[str] = "train.moves"

    def __call__(self, client: Client, task: Task) -> Reply:
        far = 100.0 if client.id in (0, CLIENTS - 1) else 0.01 * client.id
        return Reply(id=client.id, vector=task.models[0] + torch.tensor([far, 0.0, -far, 0.0, 0.0]))


@dataclass
class Circle:
    """Clients in one process that keep to the protocol; who is `away` does not answer that kind of question."""

    simulated: bool = False
    away: dict[str, set[int]] = field(default_factory=dict)
    asked: dict[str, dict[int, Task]] = field(default_factory=dict)
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    seed: int = 0
    round: int = 1

    def __post_init__(self) -> None:
        self.ledger = Ledger()
        self.clients = [a_client(i, live=not self.simulated) for i in range(CLIENTS)]

    def ask(self, step: Step, tasks: dict[int, Task]) -> list[Reply]:
        gone = self.away.get(step.kind, set())
        self.asked[step.kind] = tasks
        found = [step(self.clients[i], task) for i, task in sorted(tasks.items()) if i not in gone]
        self.replies[step.kind] = found
        return found


def a_client(number: int, *, live: bool) -> Client:
    rest: dict[str, Any] = {"train": None, "test": None, "bench": SimpleNamespace(layout=None)}
    rng = np.random.default_rng(number)
    return Client(id=number, state={}, rng=rng, seed=0, round=1, live=live, **rest)


UPDATE = SecureUpdate(step=Moves(), clip=1.0)
TASKS = {i: Task(models=torch.zeros(1, COLUMNS), slots=(0,)) for i in range(CLIENTS)}


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring is 0, 1, ..., 11, so that a test can say who sits beside whom."""
    monkeypatch.setattr(secrets.SystemRandom, "shuffle", lambda self, order: None)


@pytest.mark.parametrize("away", [(), (3,), (3, 9)])
def test_the_sum_of_a_ring_is_the_simulations_whoever_leaves(away: tuple[int, ...]) -> None:
    """With 4 neighbours one of five may leave: client 3 by itself, or 3 and 9, which are far apart."""
    circle = Circle(away={UPDATE.kind: set(away)})
    total, there = masked_sum(circle, UPDATE, TASKS, 8, 4)
    expected, same = plain_sum(
        Circle(simulated=True, away={UPDATE.kind: set(away)}), UPDATE, TASKS, 8, CLIENTS
    )
    assert there == same == [i for i in range(CLIENTS) if i not in away]
    assert np.array_equal(total, expected)
    assert total[0] > NUMBER_LEVELS


@dataclass
class TwoFaced(Circle):
    """A server that asks client 0 for the noise on which that counts, and all others for hardly any."""

    def ask(self, step: Step, tasks: dict[int, Task]) -> list[Reply]:
        if not isinstance(step, SecureUpdate):
            return super().ask(step, tasks)
        less = replace(step, share=2.0)
        return [(step if i == 0 else less)(self.clients[i], task) for i, task in sorted(tasks.items())]


def test_whoever_is_asked_for_other_noise_than_its_neighbours_stays_under_their_masks() -> None:
    """Its account counts the noise of those who must stay, for which all must have been asked for the same."""
    ask = replace(UPDATE, share=1e4)
    longest, within = CLIENTS * NUMBER_LEVELS, 12 * 1e4 * CLIENTS**0.5
    total, _ = masked_sum(Circle(), ask, TASKS, 8, 4)
    assert np.abs(total).max() < longest + within
    found, _ = masked_sum(TwoFaced(), ask, TASKS, 8, 4)
    assert np.abs(found).max() > 10 * (longest + within)
    total, _ = masked_sum(
        Circle(away={UPDATE.kind: {3}}), ask, TASKS, 8, 4
    )  # whose masks the others' shares take off
    assert np.abs(total).max() < longest + within


def test_two_neighbours_that_leave_are_too_many_for_four() -> None:
    circle = Circle(away={UPDATE.kind: {3, 4}})
    assert masked_sum(circle, UPDATE, TASKS, 8, 4) is None
    assert SecureUnmask.kind not in circle.asked
    total, _ = masked_sum(Circle(away={UPDATE.kind: {3, 4}}), UPDATE, TASKS, 8, 8)  # of eight, six must stay
    assert total.any()


def test_who_leaves_while_masks_are_taken_off_costs_the_round_only_beyond_the_threshold() -> None:
    assert masked_sum(Circle(away={SecureUnmask.kind: {5}}), UPDATE, TASKS, 8, 4) is not None
    assert masked_sum(Circle(away={SecureUnmask.kind: {5, 6}}), UPDATE, TASKS, 8, 4) is None


def test_who_leaves_before_the_shares_is_in_nobodys_masks() -> None:
    total, there = masked_sum(Circle(away={SecureShares.kind: {7}}), UPDATE, TASKS, 8, 4)
    assert 7 not in there
    assert total.any()


def test_a_client_hears_of_its_neighbours_only_and_tells_only_them() -> None:
    circle = Circle()
    masked_sum(circle, UPDATE, TASKS, 8, 4)
    keys = circle.asked[SecureShares.kind][5].args["keys"]
    assert sorted(map(int, keys)) == [3, 4, 5, 6, 7]
    assert {len(reply.stats["sealed"]) for reply in circle.replies[SecureShares.kind]} == {4}
    assert circle.asked[SecureUnmask.kind][5].args == {"there": [3, 4, 5, 6, 7], "gone": []}
    whole = Circle()
    masked_sum(whole, UPDATE, TASKS, 8, "auto")
    assert {len(reply.stats["sealed"]) for reply in whole.replies[SecureShares.kind]} == {CLIENTS - 1}


def test_a_client_gives_no_share_of_who_is_not_its_neighbour() -> None:
    circle = Circle(away={SecureUnmask.kind: set(range(CLIENTS))})
    masked_sum(circle, UPDATE, TASKS, 8, 4)
    with pytest.raises(Refused, match="nobody may have"):
        SecureUnmask()(circle.clients[5], Task(args={"there": [3, 4, 5, 6, 7, 8], "gone": []}))


def test_at_real_sites_nobody_knows_the_ring_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    beside = set()
    for _ in range(3):
        circle = Circle()
        masked_sum(circle, UPDATE, TASKS, 8, 4)
        beside.add(tuple(circle.asked[SecureShares.kind][0].args["keys"]))
    assert len(beside) > 1
