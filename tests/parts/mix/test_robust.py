"""Krum, trimmed mean and median: known answers, and what poisoned clients can and cannot do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from covey.core.needs import own_model_of
from covey.core.round import Method, run_rounds
from covey.errors import UserError
from covey.fleet.guard import Guard
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.average import Average
from covey.parts.mix.robust import (
    Clip,
    Krum,
    Median,
    Robust,
    TrimmedMean,
    krum_scores,
    robust_product,
    trimmed_mean,
)
from covey.parts.steps import Train
from covey.parts.steps.poison import Poisoned
from covey.runs.config import resolve
from covey.settings.catalogue import METHODS, RULES
from covey.testing import final, small_fleet


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


def test_of_nine_replies_the_smallest_and_the_largest_are_left_out(a_round) -> None:
    """int(0.1 * 9) is 0: a share above 0 leaves out at least one at either end, of three replies or more."""
    now = a_round((0.0,), replies={i: ((float(i),), 1) for i in range(8)} | {8: ((1e6,), 1)})
    assert TrimmedMean(trim=0.1)(now)[0].tolist() == [4.0]  # mean of 1 to 7
    assert [TrimmedMean(trim=0.1).cut(n) for n in (1, 2, 3, 4, 20, 25)] == [0, 0, 1, 1, 2, 2]
    assert TrimmedMean(trim=0.0).cut(9) == 0
    assert "robust" not in now.notes


def test_too_few_replies_are_said(a_round) -> None:
    now = a_round((0.0,), replies={0: ((1.0,), 1), 1: ((5.0,), 1)}, number=4)
    assert TrimmedMean(trim=0.1)(now)[0].tolist() == [3.0]
    assert "last: 2 in round 4" in now.notes["robust"]["text"]


def test_krum_withstands_f_of_2f_plus_3(a_round) -> None:
    with pytest.raises(UserError, match="hostile is 2, of which Krum needs 7 clients in a round"):
        METHODS["krum"](TRAIN, per_round=6, hostile=2)
    METHODS["krum"](TRAIN, per_round=7, hostile=2)
    # Four replies where five are needed: it is said, and all neighbours but one are counted, so that the far one loses.
    now = a_round((0.0,), replies={i: ((x,), 1) for i, x in enumerate((0.0, 1.0, 2.0, 50.0))})
    assert weights_of(Krum(hostile=1)(now)) == [0, 0, 1, 0, 0]
    assert "fewer replies (last: 4 in round 1) than the 5" in now.notes["robust"]["text"]


def test_clipping_shortens_long_updates_to_the_median_length() -> None:
    """From (0, 0): updates of length 1, 2 and 10 are clipped at 2; (1 + 2 + 2) / 3 along the axes."""
    rows = [torch.tensor(row) for row in ((1.0, 0.0), (0.0, 2.0), (10.0, 0.0))]
    thirds = np.full(3, 1 / 3)
    assert Clip().combine(rows, thirds, torch.zeros(2)).tolist() == pytest.approx([1.0, 2 / 3])
    assert Clip(times=5.0).combine(rows, thirds, torch.zeros(2)).tolist() == pytest.approx([11 / 3, 2 / 3])
    by_samples = np.array([0.5, 0.25, 0.25])
    assert Clip().combine(rows, by_samples, torch.zeros(2)).tolist() == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(trim=0.3), Krum(hostile=0)])
def test_a_rule_works_inside_every_group(a_round, rule) -> None:
    """Two models; one of the three replies of each is hostile. The mix is the average of each group."""
    rows = {0: 1.0, 1: 2.0, 2: 900.0, 3: 10.0, 4: -900.0, 5: 20.0}
    now = a_round((0.0,), replies={i: ((x,), 1) for i, x in rows.items()})
    now.models = torch.tensor([[0.0], [12.0]])
    now.replies = [replace(reply, slot=int(reply.id > 2)) for reply in now.replies]
    mixings = Robust(mix=Average(), rule=rule)(now)
    new = apply_mixings(mixings, now.models, [reply.vector for reply in now.replies])
    assert new[0].item() in (1.0, 2.0)
    assert new[1].item() in (10.0, 20.0)
    # The same by the part itself.
    alone = rule(now)
    alone = (
        apply_mixings([alone], now.models, [r.vector for r in now.replies])
        if isinstance(rule, Krum)
        else alone
    )
    assert torch.equal(new, alone)


def test_a_rule_keeps_the_share_of_the_old_row_and_the_weights_of_the_mix() -> None:
    """Half of the old row, half of the replies: (1/2) 4 + (1/2) median(0, 2, 100) = 3; a weight of 0 has no say."""
    bank, replies = torch.tensor([[4.0]]), [torch.tensor([x]) for x in (0.0, 2.0, 100.0, -5.0)]
    factor = csr_array(np.array([[0.5, 0.1, 0.2, 0.2, 0.0]]))
    assert robust_product([factor], bank, replies, Median()).tolist() == [[3.0]]


def test_a_rule_works_between_peers() -> None:
    """Three nodes on a full graph; node 2's model is hostile. All get the median, 2, in place of the mean."""
    bank = torch.zeros(3, 1)
    replies = [torch.tensor([x]) for x in (1.0, 2.0, 1e6)]
    collect, mean = np.hstack([np.zeros((3, 3)), np.eye(3)]), np.full((3, 3), 1 / 3)
    assert (
        robust_product([csr_array(collect), csr_array(mean)], bank, replies, Median()).tolist() == [[2.0]] * 3
    )


TRAIN = Train(epochs=2, batch=16, lr=0.1)
HOSTILE = (2, 5)  # of ten clients that all participate


def poisoned(method: Method, attack: str) -> Method:
    return replace(method, local=Poisoned(local=method.local, clients=HOSTILE, attack=attack))


def moved_by(method: Method, fleet) -> float:
    """How far the model lies from its start after a round."""
    start = fleet.start()
    state = run_rounds(method, fleet, rounds=1)
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
    assert {refused.client for refused in fleet.ledger.examples("refused")} <= set(HOSTILE)


@pytest.mark.parametrize("name", [*ROBUST, *UNGUARDED, *BOUNDED])
def test_nan_never_reaches_the_bank(digits_fleet, name: str) -> None:
    fleet = digits_fleet(clients=10, alpha=1.0)
    method = METHODS[name](TRAIN, **{**ROBUST, **UNGUARDED, **BOUNDED}[name])
    state = run_rounds(poisoned(method, "nan"), fleet, rounds=2)
    assert torch.isfinite(state.models).all()
    assert fleet.ledger.refused >= 2
    assert "NaN" in fleet.ledger.last_problem()


def test_a_flipped_sign_turns_an_update_round(digits_fleet) -> None:
    fleet = digits_fleet(clients=10, alpha=1.0)
    start = fleet.start()
    alone = replace(METHODS["fedavg"](TRAIN), select=lambda _: [2])
    nobody = replace(alone, local=Poisoned(local=TRAIN, clients=(), attack="flip"))
    honest = run_rounds(nobody, digits_fleet(clients=10, alpha=1.0), rounds=1).models[0]
    flipped = run_rounds(poisoned(alone, "flip"), fleet, rounds=1).models[0]
    assert (flipped - start).numpy() == pytest.approx((start - honest).numpy(), abs=1e-6)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="trim is"):
        METHODS["trimmed-mean"](TRAIN, trim=0.5)
    with pytest.raises(UserError, match="hostile is -1"):
        METHODS["krum"](TRAIN, hostile=-1)
    with pytest.raises(UserError, match="attack is 'x'"):
        Poisoned(local=TRAIN, clients=(), attack="x")  # type: ignore[arg-type]


ANY_MODEL = [name for name in METHODS if own_model_of(METHODS.find(name)) is None]
MIXES = sorted(set(ANY_MODEL) - {"centralized", "local", "median", "trimmed-mean"})
QUICK = {"embedding": {"pretrain_rounds": 1, "pretrain_epochs": 1}}


EVERY_RULE = ("fedavg", "hierarchical", "ifca", "fedmgda")  # one model, peers, groups, a share of the old row


@pytest.mark.parametrize(
    ("name", "rule"),
    [(name, "median") for name in MIXES]
    + [(name, rule) for name in EVERY_RULE for rule in RULES if rule != "median"],
)
def test_a_rule_can_be_put_into_every_method(name: str, rule: str) -> None:
    """By one setting, `robust.name`; honest clients are combined to finite models of the usual size."""
    tables = {"method": {"name": name, **QUICK.get(name, {})}, "train": {"lr": 0.1}, "data": {"clients": 8}}
    method = resolve({**tables, "robust": {"name": rule}}).method
    usual = final(resolve(tables).method, small_fleet(), rounds=1)
    state = final(method, small_fleet(), rounds=1)
    assert state.models.shape == usual.models.shape
    assert float(state.models.norm()) < 2 * float(usual.models.norm())


def test_the_setting_is_the_method_of_that_name() -> None:
    tables = {"train": {"lr": 0.1}, "data": {"clients": 8}}
    median = final(resolve({**tables, "method": {"name": "median"}}).method, small_fleet())
    set_so = final(resolve({**tables, "robust": {"name": "median"}}).method, small_fleet())
    assert torch.equal(median.models, set_so.models)


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(ANY_MODEL)))
def test_trees_take_no_rule(name: str) -> None:
    """Sums and trees are no rows that could be compared column by column."""
    with pytest.raises(
        UserError, match=rf"robust\.name is 'median', but method {name} combines in a way of its own"
    ):
        resolve({"method": {"name": name}, "robust": {"name": "median"}})


def test_a_method_that_combines_in_a_way_of_its_own_takes_no_rule() -> None:
    with pytest.raises(
        UserError, match=r"robust\.name is 'krum', but method median combines in a way of its own"
    ):
        resolve({"method": {"name": "median"}, "robust": {"name": "krum"}})
    with pytest.raises(UserError, match=r"robust\.name"):
        resolve({"robust": {"name": "mode"}})
