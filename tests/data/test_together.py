"""Rows of one patient, pupil or day are on one side of every split: test, validation, what is kept out of training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from covey.data import federate, read_table
from covey.data.together import fold_of, hold_out_units, split_units
from covey.data.types import Dataset
from covey.data.validation import on_validation, resplit
from covey.errors import UserError
from covey.parts.steps.judged import kept_out
from covey.parts.steps.train import split
from covey.streams import stream


def visits(path: Path, *, shared: bool) -> Dataset:
    """600 visits of 120 patients to three hospitals; `shared`: patients go to all hospitals, else each to one."""
    rng = np.random.default_rng(1)
    patients = np.repeat(np.arange(120), 5)
    lines = ["patient,hospital,age,ill"]
    for visit, patient in enumerate(patients.tolist()):
        hospital = "ABC"[(visit if shared else patient) % 3]
        lines.append(f"p{patient},{hospital},{rng.normal():.3f},{'yes' if rng.random() < 0.5 else 'no'}")
    path.write_text("\n".join(lines))
    return read_table(path, label="ill", client="hospital", together="patient")


def sides(dataset: Dataset, *parts: Any) -> None:
    """Fails where two of the parts hold rows of one patient."""
    units = dataset.natural["patient"]
    sets = [set(units[part].tolist()) for part in parts]
    for i, one in enumerate(sets):
        assert one, "an empty part would prove nothing"
        for other in sets[:i]:
            assert not one & other


@pytest.mark.parametrize("shared", [False, True])
def test_test_and_validation_rows_are_of_other_patients(tmp_path: Path, shared: bool) -> None:
    dataset = visits(tmp_path / "v.csv", shared=shared)
    assert dataset.features == ("age",)
    sides(dataset, dataset.train, dataset.test)
    assert len(dataset.test) / 600 == pytest.approx(0.2, abs=0.03)
    other = resplit(dataset, seed=3)
    sides(other, other.train, other.test)
    assert set(other.test.tolist()) != set(dataset.test.tolist())
    federation = federate(dataset, partition="natural", clients=3, seed=0)
    chosen = on_validation(federation, 0.25, seed=0)
    trained = np.concatenate([share.train.index for share in chosen.shares])
    sides(dataset, trained, chosen.test.index, dataset.test)


@pytest.mark.parametrize("shared", [False, True])
def test_what_judges_at_one_client_is_trained_on_at_none(tmp_path: Path, shared: bool) -> None:
    dataset = visits(tmp_path / "v.csv", shared=shared)
    federation = federate(dataset, partition="natural", clients=3, seed=0)
    clients: list[Any] = [
        SimpleNamespace(seed=7, id=i, train=share.train, stream=lambda *names, i=i: stream(7, *names, i))
        for i, share in enumerate(federation.shares)
    ]
    for made in ([kept_out(c.train, c, 4) for c in clients], [split(c, 0.2) for c in clients]):
        rest, judging = (np.concatenate([pair[side].index for pair in made]) for side in (0, 1))  # type: ignore[attr-defined]
        sides(dataset, rest, judging)
        assert len(rest) + len(judging) == len(dataset.train)


def test_everybody_keeps_training_rows() -> None:
    units = np.array([0, 0, 1, 2, 2, 3])
    clients = np.array([0, 0, 0, 1, 1, 2])
    for seed in range(20):
        train, test = split_units(units, 0.5, np.random.default_rng(seed), clients)
        assert set(clients[train]) == {0, 1, 2}
        assert not set(units[train]) & set(units[test])
        assert sorted([*train, *test]) == list(range(6))


def test_a_client_with_two_units_of_its_own_always_has_one_on_each_side() -> None:
    units = np.array([0, 0, 1, 1, 1, 2, 3])
    parts = [np.arange(5), np.array([5, 6])]
    for seed in range(20):
        kept, held = hold_out_units(parts, units, 0.3, np.random.default_rng(seed))
        for mine, other in zip(kept, held, strict=True):
            assert len(set(units[mine])) == len(set(units[other])) == 1


def test_a_client_of_one_unit_trains_wherever_the_unit_is() -> None:
    """Unit 0 is all that client 0 has, and client 1 has it, too: it is on one side at both, whatever is drawn."""
    units = np.array([0, 0, 0, 1, 2])
    parts = [np.array([0, 1]), np.array([2, 3, 4])]
    for seed in range(30):
        kept, held = hold_out_units(parts, units, 0.5, np.random.default_rng(seed))
        assert kept[0].tolist() == [0, 1]
        assert not len(held[0])
        assert 2 in kept[1]
        assert len(held[1]) > 0


def test_folds_are_equally_many_units_and_none_without_units(tmp_path: Path) -> None:
    dataset = visits(tmp_path / "v.csv", shared=False)
    federation = federate(dataset, partition="natural", clients=3, seed=0)
    folds = [fold_of(share.train, 10, 7, "judging") for share in federation.shares]
    of_unit: dict[int, int] = {}
    for share, found in zip(federation.shares, folds, strict=True):
        of_unit |= zip(np.asarray(share.train.units()).tolist(), np.asarray(found).tolist(), strict=True)
    counts = np.bincount(list(of_unit.values()), minlength=10)
    assert counts.max() <= 12
    assert counts.sum() == len(of_unit)
    plain = read_table(tmp_path / "v.csv", label="ill", client="hospital", exclude=["patient"])
    assert (
        fold_of(federate(plain, partition="natural", clients=3, seed=0).shares[0].train, 10, 7, "x") is None
    )


def test_a_split_that_tears_a_patient_apart_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("patient,x,y,split\np1,1,no,train\np1,2,yes,test\np2,3,no,train\n")
    with pytest.raises(
        UserError, match="together is 'patient', and 1 of its values have training rows and test"
    ):
        read_table(path, label="y", together="patient", split="split")
    path.write_text("patient,x,y\np1,1,no\n,2,yes\np2,3,no\n")
    with pytest.raises(UserError, match="every row needs its unit"):
        read_table(path, label="y", together="patient")
    with pytest.raises(UserError, match="no column 'person'"):
        read_table(path, label="y", together="person")
