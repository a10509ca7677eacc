"""Validation data stand in for test data: nothing that is chosen on them has seen a test sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from covey.data.types import Dataset, Federation
from covey.data.validation import evenly_spaced, on_validation
from covey.errors import UserError
from covey.runs.config import federation_of, resolve
from covey.runs.run import run_config

TABLES = {"rounds": 2, "data": {"name": "digits", "clients": 5}, "shift": {"name": "rotation"}}


def with_validation(share: float) -> Federation:
    return federation_of(resolve({**TABLES, "data": {**TABLES["data"], "validation": share}}))


def test_every_client_gives_its_share_and_no_test_sample_is_left() -> None:
    before, after = federation_of(resolve(TABLES)), with_validation(0.25)
    test = set(before.test.index.tolist()) | {i for s in before.shares for i in s.test.index.tolist()}
    for old, new in zip(before.shares, after.shares, strict=True):
        assert len(new.test) == round(0.25 * len(old.train))
        assert sorted([*new.train.index, *new.test.index]) == sorted(old.train.index)
        assert new.train.shift == old.train.shift == new.test.shift
    used = {i for s in after.shares for part in (s.train, s.test) for i in part.index.tolist()}
    assert not test & (used | set(after.test.index.tolist()) | set(after.dataset.test.tolist()))


def test_a_run_on_validation_data_is_the_same_whatever_the_test_data_are() -> None:
    """The test samples are replaced by noise, and no number of the federation changes."""
    before = federation_of(resolve(TABLES))
    noisy = before.dataset.x.clone()
    noisy[torch.from_numpy(before.dataset.test)] = 255
    spoiled = Dataset(**{**vars(before.dataset), "x": noisy})
    other = Federation(
        spoiled,
        tuple(type(s)(type(s.train)(spoiled, s.train.index), s.test, s.cluster) for s in before.shares),
        before.test,
    )
    one, two = on_validation(before, 0.2, 3), on_validation(other, 0.2, 3)
    for a, b in zip(one.shares, two.shares, strict=True):
        assert np.array_equal(a.test.index, b.test.index)
        plain = type(a.test)(a.test.dataset, a.test.index)
        assert torch.equal(plain.tensors()[0], b.test.tensors()[0])


def test_it_is_written_only_where_it_is_asked_for() -> None:
    assert "validation" not in resolve(TABLES).toml()
    assert "validation = 0.2" in resolve({**TABLES, "data": {"name": "digits", "validation": 0.2}}).toml()
    with pytest.raises(UserError, match=r"data\.validation is 1"):
        resolve({"data": {"validation": 1.0}})


def test_a_run_ends_when_the_number_it_watches_has_not_improved(tmp_path: Path) -> None:
    config = resolve(
        {
            "rounds": 40,
            "data": {"name": "digits", "clients": 4},
            "train": {"lr": 1e-9, "epochs": 1},
            "stop": {"patience": 3, "metric": "global-test/loss"},
        }
    )
    said: list[str] = []
    done = run_config(config, tmp_path / "run", report=False, say=said.append)
    best = done.summary.best["global-test/loss"].round
    assert done.summary.rounds_done == best + 3 < 40
    assert said[-1] == f"ended after round {best + 3} of 40: no better global-test/loss for 3 rounds"
    assert done.summary.finished
    with pytest.raises(UserError, match=r"stop\.metric is 'global-test/f1', which is not measured"):
        resolve({**TABLES, "stop": {"metric": "global-test/f1"}})


def test_fewer_test_samples_are_evenly_spaced_and_the_same_for_every_seed() -> None:
    """Of 10 samples 4: floor(i 10 / 4) = 0, 2, 5, 7."""
    ten = federation_of(resolve(TABLES)).test.select(slice(10))
    assert evenly_spaced(ten, 4).index.tolist() == ten.index[[0, 2, 5, 7]].tolist()

    few = [
        federation_of(resolve({**TABLES, "seed": seed, "data": {**TABLES["data"], "test_samples": 50}}))
        for seed in (0, 1)
    ]
    assert len(few[0].test) == 50
    assert np.array_equal(few[0].test.index, few[1].test.index)
    whole = federation_of(resolve(TABLES))
    assert [len(s.test) for s in few[0].shares] == [len(s.test) for s in whole.shares]


def test_more_test_samples_than_there_are_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"data\.test_samples is 361; the global test set has 359, so allowed: 1 to 359"
    ):
        federation_of(resolve({"data": {"test_samples": 361}}))
    assert "test_samples" not in resolve(TABLES).toml()
