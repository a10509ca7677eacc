"""Fleets with known answers, and what counts as false: numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from covey.fleet.heterogeneity.measure import HeterogeneityMeasure, measure_heterogeneity
from covey.runs.advise import Advice, Gain
from covey.runs.config import fleet_of, resolve
from covey.runs.objects import data_tables
from experiments.studies import advice_fleets
from experiments.studies.advice import interval, judged_gains, regret, within
from experiments.studies.advice_fleets import Kind, generate, looked, renaming, true_shifts, true_skew


def generated(monkeypatch: pytest.MonkeyPatch, **kind: object) -> advice_fleets.Generated:
    usual = {"pool": "digits", "clients": 8, "sizes": (80, 80)}
    monkeypatch.setattr(advice_fleets, "draw_kind", lambda rng: Kind(**{**usual, **kind}))
    return generate(0)


def test_design_and_test_fleets_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice_fleets, "POOLS", ("digits",) * 4)
    one, same, other = generate(3, "test"), generate(3, "test"), generate(3, "design")
    assert one.kind == same.kind
    assert np.array_equal(one.shares, same.shares)
    assert one.kind != other.kind


def test_the_true_skew_by_hand() -> None:
    """One label each: 1. Shares 3/4, 1/4 and 1/4, 3/4: within 6/16 differ, across 10/16."""
    assert true_skew(np.eye(3)) == 1.0
    assert true_skew(np.array([[0.75, 0.25], [0.25, 0.75]])) == pytest.approx(1 - 6 / 10)


def test_a_renaming_moves_that_part_of_the_classes() -> None:
    names = renaming(0.4, 10, np.random.default_rng(0))
    assert sorted(names.tolist()) == list(range(10))
    assert (names != np.arange(10)).sum() == 4


def test_what_is_generated_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = generated(monkeypatch, groups=2, renamed=1.0, noisy=0.25, random=1.0)
    assert (len(fleet.data.shares), int(fleet.noisy.sum())) == (8, 2)
    assert [len(share.train) for share in fleet.data.shares] == [80] * 8
    held = [np.arange(10)] * 8
    named, right, concept = true_shifts(fleet, held)
    # no input moved; of the six clients that are not noisy, a pair of two groups disagrees on every class
    across = np.mean(
        [
            fleet.group[i] != fleet.group[j]
            for i in np.flatnonzero(~fleet.noisy)
            for j in range(i)
            if not fleet.noisy[j]
        ]
    )
    assert right == pytest.approx(0.0)
    assert named > 0.2
    assert concept == pytest.approx(across, abs=0.12)  # classes that look alike count less


def test_the_measures_find_what_was_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = generated(monkeypatch, groups=2, renamed=1.0, alpha=2.0, sizes=(150, 150))
    asked = fleet_of(resolve({**data_tables(fleet.data), "model": {"name": "mlp", "hidden": [8]}}))
    found = measure_heterogeneity(asked)
    asked.close()
    assert within(found.label_skew, true_skew(fleet.shares))
    assert found.concept_shift.known
    truth = true_shifts(fleet, [np.arange(10)] * 8)[2]  # of all classes; a client may lack one
    assert found.concept_shift.value == pytest.approx(truth, abs=0.1)


def test_a_rotated_group_sees_rotated_pictures() -> None:
    import torch

    picture = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    assert torch.equal(looked(picture, "rotated", 1), torch.tensor([[[[0.0, 0.0], [1.0, 0.0]]]]))
    assert float(looked(picture, "dim", 2).max()) == pytest.approx(0.6)
    assert float(looked(picture, "bright", 1).min()) == pytest.approx(0.25)


def test_an_interval_is_judged_as_it_is_printed() -> None:
    """[.012, .068] is printed as [.01, .07]."""
    assert within(HeterogeneityMeasure(0.04, 0.012, 0.068), 0.07)
    assert not within(HeterogeneityMeasure(0.04, 0.012, 0.068), 0.072)


def test_a_gain_is_false_where_the_intervals_do_not_meet() -> None:
    """Four clients gain 9 to 11 points: mean 10, error 2 * 0.816 / 2 = .816, so 9.2 to 10.8."""
    runs = {
        "fedavg": np.full(4, 0.5),
        "covey": 0.5 + np.array([0.09, 0.10, 0.10, 0.11]),
        "local": np.full(4, 0.4),
    }
    assert interval(runs["covey"] - runs["fedavg"]) == pytest.approx((10 - 0.8165, 10 + 0.8165), abs=1e-3)
    gains = {"covey": Gain(5.0, 0.0, 9.2), "local": Gain(0.0, -5.0, 5.0)}
    advice = Advice(heterogeneity=None, method="covey", other=None, gains=gains, similar=[])  # type: ignore[arg-type]
    assert judged_gains(advice, runs) == {"gain of the advised": False, "each client alone": False}
    wider = Advice(
        heterogeneity=None, method="covey", other=None, gains={"covey": Gain(5.0, 0.0, 10.0)}, similar=[]
    )  # type: ignore[arg-type]
    assert judged_gains(wider, runs) == {"gain of the advised": True}


def test_regret_is_what_is_beyond_chance() -> None:
    runs = {
        "fedavg": np.full(4, 0.5),
        "covey": 0.5 + np.array([0.09, 0.10, 0.10, 0.11]),
        "ifca": np.array([0.9, 0.2, 0.9, 0.2]),
    }
    assert regret(runs, "fedavg") == pytest.approx(10.0)
    assert regret(runs, "covey") == 0.0
    assert math.isclose(regret({"covey": runs["covey"]}, "covey"), 0.0)
