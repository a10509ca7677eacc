"""Krum, trimmed mean and median: known answers, and what poisoned clients can and cannot do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.core import Method, run
from covey.errors import UserError
from covey.fleet.guard import Guard
from covey.methods import METHODS
from covey.mix.robust import Krum, Median, TrimmedMean, krum_scores, trimmed_mean
from covey.steps import Train
from covey.steps.poison import Poisoned


def test_krum_scores_by_hand() -> None:
    """On a line at 0 1 3 10 with f = 1: one neighbour each, at squared distance 1 1 4 49."""
    vectors = [torch.tensor([x]) for x in (0.0, 1.0, 3.0, 10.0)]
    assert krum_scores(vectors, hostile=1).tolist() == pytest.approx([1, 1, 4, 49])


def weights_of(mixing) -> list[float]:
    return mixing.factors[0].toarray()[0].tolist()


def test_krum_takes_the_reply_closest_to_its_neighbours(a_round) -> None:
    rows = {
        0: ((0.0, 0.0), 5),
        1: ((0.1, 0.0), 500),
        2: ((0.2, 0.1), 5),
        3: ((0.1, 0.2), 5),
        4: ((9.0, 9.0), 5),
    }
    now = a_round((0.0, 0.0), replies=rows)
    assert weights_of(Krum(hostile=1)(now)) == [0, 0, 1, 0, 0, 0]
    kept = weights_of(Krum(hostile=1, keep=4)(now))
    assert kept == [0, 0.25, 0.25, 0.25, 0.25, 0]


def test_krum_with_a_single_reply(a_round) -> None:
    assert weights_of(Krum(hostile=1)(a_round((0.0,), replies={3: ((2.0,), 1)}))) == [0, 1]


def test_trimmed_mean_and_median_by_hand(a_round) -> None:
    rows = {i: ((value, -value), 1) for i, value in enumerate((1.0, 2.0, 4.0, 100.0, -7.0))}
    now = a_round((0.0, 0.0), replies=rows)
    assert TrimmedMean(trim=0.2)(now)[0].tolist() == pytest.approx([7 / 3, -7 / 3])
    assert Median()(now)[0].tolist() == [2.0, -2.0]
    now.replies = now.replies[:4]
    assert Median()(now)[0].tolist() == [3.0, -3.0]
    assert TrimmedMean(trim=0.0)(now)[0].tolist() == pytest.approx([26.75, -26.75])


@given(st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=9))
def test_untrimmed_is_the_mean_and_fully_trimmed_the_median(rows) -> None:
    table = torch.tensor(rows)
    array = table.double().numpy()
    assert trimmed_mean(table, 0).numpy() == pytest.approx(array.mean(0), rel=1e-5, abs=1e-5)
    assert trimmed_mean(table, (len(rows) - 1) // 2).numpy() == pytest.approx(
        np.median(array, axis=0), rel=1e-5, abs=1e-5
    )


def test_rows_without_replies_stay(a_round) -> None:
    now = a_round((1.0,), replies={0: ((5.0,), 1)})
    now.models = torch.tensor([[1.0], [2.0]])
    assert Median()(now).tolist() == [[5.0], [2.0]]


TRAIN = Train(epochs=2, batch=16, lr=0.1)
HOSTILE = (2, 5)  # of ten clients that all take part


def poisoned(method: Method, attack: str) -> Method:
    return replace(method, local=Poisoned(local=method.local, clients=HOSTILE, attack=attack))


def moved_by(method: Method, fleet) -> float:
    """How far the model lies from its start after a round."""
    start = fleet.start()
    state = run(method, fleet, rounds=1)
    assert torch.isfinite(state.models).all()
    return float((state.models[0] - start).norm())


ROBUST = {
    "krum": {"hostile": 2},
    "trimmed-mean": {"trim": 0.2},
    "median": {},
}
UNGUARDED = {"fedavg": {}, "cfic": {}, "feddyn": {}, "fedfa": {}, "clustered-sampling": {}}
BOUNDED = {"fedmgda": {"eta": 1.0}}  # every client's say has length 1


@pytest.mark.parametrize("name", [*ROBUST, *UNGUARDED, *BOUNDED])
def test_what_an_update_times_1000_does(digits_fleet, name: str) -> None:
    method = METHODS[name](TRAIN, **{**ROBUST, **UNGUARDED, **BOUNDED}[name])
    open_door = Guard(norm=0)  # what the combine alone withstands
    honest = moved_by(method, digits_fleet(clients=10, alpha=1.0, guard=open_door))
    hostile = moved_by(poisoned(method, "scale"), digits_fleet(clients=10, alpha=1.0, guard=open_door))
    if name in UNGUARDED:
        assert hostile > 20 * honest
    else:
        assert hostile < 2 * honest


@pytest.mark.parametrize("name", [*ROBUST, *UNGUARDED, *BOUNDED])
def test_the_guard_refuses_an_update_times_1000_whatever_the_combine(digits_fleet, name: str) -> None:
    method = METHODS[name](TRAIN, **{**ROBUST, **UNGUARDED, **BOUNDED}[name])
    honest = moved_by(method, digits_fleet(clients=10, alpha=1.0))
    fleet = digits_fleet(clients=10, alpha=1.0)
    assert moved_by(poisoned(method, "scale"), fleet) < 2 * honest
    assert {refused["client"] for refused in fleet.ledger.examples("refused")} <= set(HOSTILE)


@pytest.mark.parametrize("name", [*ROBUST, *UNGUARDED, *BOUNDED])
def test_nan_never_reaches_the_bank(digits_fleet, name: str) -> None:
    fleet = digits_fleet(clients=10, alpha=1.0)
    method = METHODS[name](TRAIN, **{**ROBUST, **UNGUARDED, **BOUNDED}[name])
    state = run(poisoned(method, "nan"), fleet, rounds=2)
    assert torch.isfinite(state.models).all()
    assert fleet.ledger.refused >= 2
    assert "NaN" in fleet.ledger.last_problem()


def test_a_flipped_sign_turns_an_update_round(digits_fleet) -> None:
    fleet = digits_fleet(clients=10, alpha=1.0)
    start = fleet.start()
    alone = replace(METHODS["fedavg"](TRAIN), select=lambda _: [2])
    nobody = replace(alone, local=Poisoned(local=TRAIN, clients=(), attack="flip"))
    honest = run(nobody, digits_fleet(clients=10, alpha=1.0), rounds=1).models[0]
    flipped = run(poisoned(alone, "flip"), fleet, rounds=1).models[0]
    assert (flipped - start).numpy() == pytest.approx((start - honest).numpy(), abs=1e-6)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="trim is"):
        METHODS["trimmed-mean"](TRAIN, trim=0.5)
    with pytest.raises(UserError, match="hostile is -1"):
        METHODS["krum"](TRAIN, hostile=-1)
    with pytest.raises(UserError, match="attack is 'x'"):
        Poisoned(local=TRAIN, clients=(), attack="x")  # type: ignore[arg-type]
