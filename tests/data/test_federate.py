"""Sharing out: at most once, deterministic, local test data in the client's own label mix."""

import numpy as np
import pytest
import torch

from covey.data import federate, load
from covey.errors import UserError


@pytest.mark.parametrize("partition", ["iid", "dir-class"])
def test_every_training_sample_goes_to_exactly_one_client(partition):
    digits = load("digits")
    fleet = federate(digits, partition=partition, clients=20, seed=3)
    given = np.concatenate([share.train.index for share in fleet.shares])
    assert sorted(given) == sorted(digits.train)
    tested = np.concatenate([share.test.index for share in fleet.shares])
    assert len(set(tested)) == len(tested)
    assert set(tested) <= set(digits.test)
    assert fleet.label_counts().sum() == len(digits.train)
    assert all(len(share.test) >= 1 for share in fleet.shares)


def test_the_same_seed_gives_the_same_shares_and_another_seed_does_not():
    digits = load("digits")
    first, again, other = (federate(digits, partition="dir-class", clients=10, seed=s) for s in (1, 1, 2))
    assert all(
        np.array_equal(a.train.index, b.train.index) and np.array_equal(a.test.index, b.test.index)
        for a, b in zip(first.shares, again.shares, strict=True)
    )
    assert not np.array_equal(first.shares[0].train.index, other.shares[0].train.index)


def test_samples_are_scaled_and_gathered_as_float32():
    x, y = federate(load("digits"), partition="iid", clients=10, seed=0).shares[0].train.tensors()
    assert x.dtype == torch.float32
    assert x.shape[1:] == (1, 8, 8)
    assert 0 <= x.min() < 0.1
    assert x.max() == 1
    assert y.dtype == torch.int64


def test_a_request_that_cannot_be_met_is_one_sentence():
    with pytest.raises(UserError, match=r"clients = 200 with at least 10 samples each need 2,000 samples"):
        federate(load("digits"), partition="dir-class", clients=200, seed=0)


@pytest.mark.data
def test_mnist_has_its_official_counts(data_folder):
    mnist = load("mnist", folder=data_folder / "mnist")
    assert mnist.x.shape == (70000, 1, 28, 28)
    counts = np.bincount(mnist.labels()[mnist.train])
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
