"""Clusters of devices from noisy sums: numbers worked out by hand, and what is told is what is accounted."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from covey.core import Method, Task
from covey.core.round import run_rounds
from covey.fleet.local import LocalFleet
from covey.privacy.candidates import (
    CANDIDATES,
    AddSketch,
    NoisyTables,
    distances,
    found_by,
    nearest,
    standing_apart,
    sums_for,
)
from covey.privacy.choices import CHOSEN, ChoiceSums
from covey.privacy.clipping import Split
from covey.privacy.secure_steps import SecureUpdate
from covey.privacy.sketch import COUNTED_AS
from covey.privacy.sums import RoundSums
from covey.runs.config import resolve
from covey.testing import CLIENTS, small_fleet


def table(*classes: tuple[float, float, float]) -> np.ndarray:
    """Class sums in two dimensions, and counts."""
    return np.array([(x, y, COUNTED_AS * n) for x, y, n in classes])


def test_a_client_chooses_the_nearest_prototype_by_its_own_classes_alone() -> None:
    own = table((2, 0, 2), (0, 0, 0))  # two samples of class 0 at (1, 0), none of class 1
    prototypes = np.array([[(0.0, 1.0), (1.0, 0.0)], [(0.8, 0.0), (9.0, 9.0)]])
    assert nearest(own, prototypes) == 1  # 2 * |(1,0) - (0,1)|^2 = 4 against 2 * 0.04


def test_distances_are_without_the_part_of_the_noise() -> None:
    """Two prototypes of one class: |p - q|^2 - d s, s the sum of both (z / n)^2 (1 + 16 |m|^2 / d); 0 under noise."""
    two = NoisyTables.of(np.stack([table((8, 0, 10)), table((0, 8, 20))]), noise=0.5)
    far, error = distances(two)
    spread = 0.25 * ((1 + 16 * 0.64 / 2) / 100 + (1 + 16 * 0.16 / 2) / 400)
    assert far[0, 1] == pytest.approx((0.8**2 + 0.4**2) - 2 * spread)
    assert error[0, 1] == pytest.approx(2 * spread)  # sqrt(2 d) s, d = 2
    rng = np.random.default_rng(0)
    same = np.stack([table((8, 0, 400)), table((8, 0, 400))])
    drawn = [
        distances(NoisyTables.of(same + rng.normal(0, 2, same.shape), 2.0))[0][0, 1] for _ in range(2000)
    ]
    assert np.mean(drawn) == pytest.approx(0.0, abs=4 * np.std(drawn) / 2000**0.5)


def test_prototypes_are_merged_until_they_stand_apart() -> None:
    tables = NoisyTables.of(
        np.stack([table((80, 0, 100)), table((81, 0, 100)), table((0, 80, 100))]), noise=1.0
    )
    assert standing_apart(tables, unit=1.0).tolist() == [0, 0, 1]
    assert standing_apart(NoisyTables.of(tables.sums, noise=40.0), unit=1.0).tolist() == [0, 0, 0]


def clients_at(places: np.ndarray, each: int, rng: np.random.Generator) -> np.ndarray:
    """Tables of length 1 of clients whose classes lie at these places [clusters, classes, d], with some spread."""
    classes, dims = places.shape[1:]
    found = np.zeros((len(places) * each, classes, dims + 1))
    for number in range(len(found)):
        found[number, :, :-1] = 3 * (places[number // each] + 0.1 * rng.standard_normal((classes, dims)))
        found[number, :, -1] = 3 * COUNTED_AS
    return found / np.linalg.norm(found, axis=(1, 2), keepdims=True)


@pytest.mark.parametrize(("noise", "clusters"), [(0.01, 3), (3.0, 3), (200.0, 1)])
def test_three_clusters_are_found_or_one_where_noise_hides_them(noise: float, clusters: int) -> None:
    rng = np.random.default_rng(1)
    places = rng.standard_normal((3, 4, 8))
    places /= np.linalg.norm(places, axis=2, keepdims=True)
    tables, asked = clients_at(places, 300, rng), []

    def told(prototypes: np.ndarray | None) -> np.ndarray:
        rows = 1 if prototypes is None else len(prototypes)
        asked.append(rows)
        sums = np.zeros((rows, *tables.shape[1:]))
        for one in tables:
            sums[0 if prototypes is None else nearest(one, prototypes)] += one
        return sums + rng.normal(0, noise, sums.shape)

    prototypes, models = found_by(told, noise, splits=3, rng=rng)
    assert len(prototypes) == clusters
    assert len(asked) == sums_for(3) == 7
    if clusters == 3:
        chosen = [nearest(one, prototypes) for one in tables]
        assert [len(set(chosen[i : i + 300])) for i in (0, 300, 600)] == [1, 1, 1]
        assert len(set(chosen)) == 3
    assert len(models) == len(prototypes)


def private_covey(batch: int = 32, **private: Any) -> tuple[Method, LocalFleet]:
    tables = {
        "rounds": 3,
        "method": {"name": "covey"},
        "train": {"batches": 2, "batch": batch},
        "data": {"clients": CLIENTS},
        "private": {"epsilon": 8.0, "clip": 0.5, **private},
    }
    return resolve(tables).method, small_fleet()


def test_covey_hides_clients_as_it_is_and_all_that_is_told_keeps_to_epsilon() -> None:
    method, fleet = private_covey()
    state = run_rounds(method, fleet, rounds=3)
    sketches = method.group.planned  # type: ignore[union-attr]
    told = fleet.ledger.told[0]
    [update] = [loss for loss in told if loss.what == "updates"]
    [sketch] = [loss for loss in told if loss.what == "embeddings"]
    assert (told[sketch], sketch.noise) == (7, sketches.noise)
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sketch.noise), 7))
    drawn = GaussianDpEvent(update.noise)
    drawn = PoissonSampledDpEvent(update.rate, drawn) if update.rate < 1 else drawn
    accountant.compose(SelfComposedDpEvent(drawn, told[update]))
    assert 7.5 < accountant.get_epsilon(1e-5) <= 8.001
    assert state.groups == {}  # who chose which model is nobody's to know
    assert "scores" not in str(state.memory)
    assert len(state.models) == 1 + max(CANDIDATES.of(state.memory)["models"])


@pytest.mark.parametrize("noise_from", ["server", "clients"])
def test_secure_sums_of_choices_hide_who_chose_what(noise_from: str) -> None:
    """Nothing but whole numbers under the same length for everybody is told, in tables and in updates."""
    method, fleet = private_covey(secure=True, clip="adaptive", noise_from=noise_from)
    ask, told = fleet.ask, []

    def listening(step: Any, tasks: Any, **options: Any) -> Any:
        replies = ask(step, tasks, **options)
        told.extend((step.kind, reply) for reply in replies if not options.get("measure"))
        return replies

    fleet.ask = listening  # type: ignore[method-assign]
    state = run_rounds(method, fleet, rounds=3)
    assert {kind for kind, _ in told} == {SecureUpdate.kind}
    assert all(r.vector is None and r.slot == 0 and set(r.stats) == {"numbers"} for _, r in told)
    assert fleet.ledger.told[0] == private_losses(noise_from)
    assert float((state.models - fleet.start()).norm()) > 0


def private_losses(noise_from: str) -> dict[Any, int]:
    """What sums that are seen cost under the same settings, sampling included."""
    method, fleet = private_covey(
        clip="adaptive", **({} if noise_from == "server" else {"sampling": "method"})
    )
    run_rounds(method, fleet, rounds=3)
    return fleet.ledger.told[0]


def test_secure_sums_are_the_same_sums_up_to_rounding() -> None:
    """The noise is the server's, of the same stream: models differ by a millionth of a clip length for each client."""
    whole = 10**6  # a batch of all samples, so that no draw of batches differs
    seen, unseen = (run_rounds(*private_covey(whole, secure=secure), rounds=3) for secure in (False, True))
    found = [np.asarray(CANDIDATES.of(state.memory)["prototypes"]) for state in (seen, unseen)]
    np.testing.assert_allclose(*found, atol=1e-3)
    np.testing.assert_allclose(seen.models, unseen.models, atol=1e-4)


def test_a_client_adds_its_update_to_the_row_of_its_choice() -> None:
    """Length 2 is shortened to the clip length 1, of which sqrt(1 - 1/16) is for the update; 1/4 counts the choice."""
    ask = SecureUpdate(step=AddSketch(), clip=1.0, rows=3, counted=0.25, short=0.5)
    whole = ask.numbers(torch.tensor([0.0, -2.0]), slot=1) / 2**20
    assert whole == pytest.approx([0, 0, 0, -((15 / 16) ** 0.5), 0, 0, 0, 0.25, 0, -0.25], abs=2**-20)
    assert np.linalg.norm(whole) <= ask.longest / 2**20 == (1 + 1 / 16) ** 0.5
    values, chosen, short = ask.parted(
        torch.from_numpy(whole + ask.numbers(torch.tensor([0.5, 0.0]), 1) / 2**20)
    )
    assert values[1].tolist() == pytest.approx([0.5, -((15 / 16) ** 0.5)], abs=1e-5)
    assert (chosen.tolist(), short) == ([0.0, 2.0, 0.0], 0.0)  # one short, one long: 1/2 - 1/2
    # a row that is not there: to fail would tell the choice
    far = ask.numbers(torch.tensor([0.0, -2.0]), slot=7)
    assert far.tolist() == ask.numbers(torch.tensor([0.0, -2.0]), slot=2).tolist()


def test_a_table_that_is_too_long_counts_as_one() -> None:
    """Who lies about its table moves a sum by no more than length 1."""
    from covey.privacy.candidates import SketchSums

    replies = [SimpleNamespace(slot=0, stats={"table": 1000 * table((3, 4, 0))}) for _ in range(2)]
    ledger = SimpleNamespace(lose=lambda *_: None, tries=1)
    fleet = SimpleNamespace(ask=lambda *_: replies, simulated=True, ledger=ledger)
    rng = np.random.default_rng(0)
    now: Any = SimpleNamespace(fleet=fleet, here=[0, 1], memory={}, number=1, stream=lambda *_: rng)
    told = SketchSums(now=now, noise=1e-9)(None)
    np.testing.assert_allclose(told[0], 2 * table((0.6, 0.8, 0)), atol=1e-6)


def test_of_a_try_that_was_lost_everybody_pays_who_may_have_been_in_it() -> None:
    """Client 2 was there when the server was killed, and is away when it begins anew."""
    from covey.core.ledger import Ledger
    from covey.privacy.candidates import SketchSums

    reply, ledger = SimpleNamespace(slot=0, stats={"table": table((3, 4, 0))}), Ledger(tries=2)
    fleet = SimpleNamespace(ask=lambda *_: [reply], simulated=True, ledger=ledger, members=lambda: [0, 1, 2])
    now: Any = SimpleNamespace(fleet=fleet, here=[0, 1], seen=[], memory={}, number=1)
    now.stream = lambda *_: np.random.default_rng(0)
    SketchSums(now=now, noise=1.0)(None)
    assert {client: sum(told.values()) for client, told in ledger.told.items()} == {0: 2, 1: 2, 2: 2}


def test_counts_of_choices_are_added_up_and_nothing_is_divided_by_chance() -> None:
    """100 are expected; 30 chose model 0 in each of two rounds, nobody model 1: its count is at least two errors."""
    sums = ChoiceSums(plan=None)  # type: ignore[arg-type]
    still = SimpleNamespace(normal=lambda *_: np.zeros(1))
    fleet = SimpleNamespace(simulated=True)
    now: Any = SimpleNamespace(models=np.zeros((2, 1)), memory={}, fleet=fleet, stream=lambda *_: still)
    pools = {(0, -1): 100.0, (1, -1): 100.0}
    one = Split(updates=1.0, count=0.0)
    counts = {(0, -1): 30.0, (1, -1): 0.0}
    given = RoundSums(
        pools={pool: [0] for pool in pools}, expected=pools, clip=1.0, noise=1.0, split=one, counts=counts
    )
    for _ in range(2):
        first, second = (sums.behind(now, pool, given) for pool in pools)
    assert first == pytest.approx(30.0)
    assert second == pytest.approx(
        2 * (2 * 4**2) ** 0.5 / 200 * 100
    )  # noise of 1 / COUNTED_AS = 4 clients a round
    assert CHOSEN.of(now.memory) == [[60.0, 200.0, 32.0], [0.0, 200.0, 32.0]]
    assert sums.room(now) == pytest.approx((1 - 1 / 16) ** 0.5)


def test_the_table_that_a_client_adds_has_length_one() -> None:
    fleet = small_fleet()
    fleet.begin(1)
    [reply] = fleet.ask(AddSketch(), {0: Task()})
    assert np.linalg.norm(reply.stats["table"]) == pytest.approx(1.0)
    assert reply.slot == 0
    assert reply.size == 1


def test_a_method_of_ones_own_parts_hides_clients_by_portraits_whoever_its_parts_choose() -> None:
    parts = {"group": "portraits", "bank": "per-cluster", "select": "everybody"}
    tables: dict[str, Any] = {
        "method": {"name": "compose", **parts},
        "private": {"epsilon": 8.0},
        "rounds": 1,
    }
    state = run_rounds(resolve(tables).method, small_fleet(), rounds=1)
    assert len(CANDIDATES.of(state.memory)["models"])
