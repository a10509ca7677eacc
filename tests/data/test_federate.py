"""Sharing out a data set: local test data in each client's own mix, true clusters, named settings, big fleets."""

import time

import numpy as np
import pytest
import torch

from covey.data import federate, from_tensors, load
from covey.data.local_tests import from_pool
from covey.errors import UserError
from covey.settings.catalogue import PARTITIONS


def made_up(classes=10, train=200, test=50, **settings):
    """`train` and `test` samples of each class, one feature that says which sample it is."""
    y = torch.arange(classes).repeat_interleave(train)
    other = torch.arange(classes).repeat_interleave(test)
    x = torch.arange(len(y) + len(other), dtype=torch.float32)[:, None]
    return from_tensors(x[: len(y)], y, test=(x[len(y) :], other), **settings)


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_every_training_sample_goes_to_exactly_one_client(digits):
    fleet = federate(digits, partition="dir-class", clients=20, seed=3)
    given = np.concatenate([share.train.index for share in fleet.shares])
    assert sorted(given) == sorted(digits.train)
    tested = np.concatenate([share.test.index for share in fleet.shares])
    assert len(set(tested)) == len(tested)
    assert set(tested) <= set(digits.test)
    assert all(len(share.test) >= 1 for share in fleet.shares)
    assert fleet.label_counts().shape == (20, 10)
    assert fleet.label_counts().sum() == len(digits.train)
    assert np.array_equal(fleet.test.index, digits.test)


def test_the_same_seed_gives_the_same_shares_and_another_seed_does_not(digits):
    first, again, other = (federate(digits, partition="dir-class", clients=10, seed=s) for s in (1, 1, 2))
    assert all(
        np.array_equal(a.train.index, b.train.index) and np.array_equal(a.test.index, b.test.index)
        for a, b in zip(first.shares, again.shares, strict=True)
    )
    assert not np.array_equal(first.shares[0].train.index, other.shares[0].train.index)


def test_a_shift_does_not_change_who_holds_what(digits):
    plain = federate(digits, partition="iid", clients=5, seed=1)
    rotated = federate(digits, partition="iid", clients=5, seed=1, shift="rotation")
    assert all(
        np.array_equal(a.train.index, b.train.index) and np.array_equal(a.test.index, b.test.index)
        for a, b in zip(plain.shares, rotated.shares, strict=True)
    )


# ------------------------------------------------------------------------------------------ local test data


def test_local_test_counts_are_one_rate_times_the_training_counts():
    # Training: client 0 has 4 + 2, client 1 has 0 + 8 of labels 0, 1; test pools 6 and 5. Rates 6/4 and 5/10: r = 0.5.
    labels = np.array([0] * 4 + [1] * 10 + [0] * 6 + [1] * 5)
    parts = [np.array([0, 1, 2, 3, 4, 5]), np.arange(6, 14)]
    kept, tests = from_pool(parts, labels, np.arange(14, 25), np.random.default_rng(0))
    assert [np.bincount(labels[test], minlength=2).tolist() for test in tests] == [[2, 1], [0, 4]]
    assert kept[0].tolist() == parts[0].tolist()


def test_fractions_of_local_test_samples_are_rounded_right_on_average():
    labels = np.array([0] * 30 + [0] * 10)
    sizes = np.zeros(3)
    for seed in range(200):
        parts = [np.arange(5), np.arange(5, 15), np.arange(15, 30)]
        _, tests = from_pool(parts, labels, np.arange(30, 40), np.random.default_rng(seed))
        got = np.array([len(test) for test in tests])
        assert got.sum() == 10
        assert (np.abs(got - np.array([5, 10, 15]) / 3) < 1).all()
        sizes += got / 200
    np.testing.assert_allclose(sizes, np.array([5, 10, 15]) / 3, atol=0.12)


def test_local_test_mixes_equal_the_training_mixes_of_heterogeneous_clients():
    fleet = federate(made_up(train=2000, test=1000), partition="dir-class", clients=10, seed=0, alpha=0.3)
    for share in fleet.shares:
        train, test = (np.bincount(part.labels(), minlength=10) for part in (share.train, share.test))
        # One rate for all labels, each count rounded up or down.
        assert np.abs(test - train * 0.5).max() < 1


def test_a_client_that_rounding_left_out_gets_a_test_sample_of_its_own_label():
    fleet = federate(made_up(train=100, test=20), partition="iid", clients=200, seed=0)
    assert [len(share.train) for share in fleet.shares] == [5] * 200
    assert all(len(share.test) == 1 for share in fleet.shares)
    assert all(share.test.labels()[0] in share.train.labels() for share in fleet.shares)


def test_with_more_clients_than_test_samples_a_client_gives_one_of_its_own():
    data = made_up(train=100, test=5)
    fleet = federate(data, partition="iid", clients=200, seed=0)
    own = [share for share in fleet.shares if share.test.index[0] in set(data.train)]
    assert len(own) >= 150  # 50 test samples for 200 clients
    assert all(len(share.train) == 4 and len(share.test) == 1 for share in own)
    everything = np.concatenate([np.append(share.train.index, share.test.index) for share in fleet.shares])
    assert len(set(everything)) == len(everything)


def test_a_label_without_test_samples_is_left_out_of_local_tests():
    y = torch.tensor([0] * 40 + [1] * 40)
    data = from_tensors(torch.rand(80, 2), y, test=(torch.rand(20, 2), torch.zeros(20, dtype=torch.int64)))
    fleet = federate(data, partition="iid", clients=4, seed=0)
    assert sum(len(share.test) for share in fleet.shares) == 20
    assert all(set(share.test.labels()) == {0} for share in fleet.shares)


def test_test_fraction_splits_the_clients_own_samples_by_label():
    fleet = federate(made_up(), partition="shards", clients=20, seed=0, test_fraction=0.25)
    for share in fleet.shares:
        assert (len(share.train), len(share.test)) == (75, 25)
        train, test = (np.bincount(part.labels(), minlength=10) for part in (share.train, share.test))
        assert np.abs(test - (train + test) / 4).max() <= 1


def test_natural_clients_are_tested_on_their_own_writers_test_samples():
    writer = np.tile(np.arange(5), 500)  # 2,000 training and 500 test samples
    fleet = federate(made_up(natural={"writer": writer}), partition="natural", clients=5, seed=0)
    for client, share in enumerate(fleet.shares):
        assert (len(share.train), len(share.test)) == (400, 100)
        assert set(writer[share.train.index]) == set(writer[share.test.index]) == {client}


def test_natural_clients_without_test_samples_hold_out_a_fifth_of_their_own():
    writer = np.concatenate([np.tile(np.arange(5), 400), np.full(500, 5)])
    fleet = federate(made_up(natural={"writer": writer}), partition="natural", clients=5, seed=0)
    assert [(len(share.train), len(share.test)) for share in fleet.shares] == [(320, 80)] * 5


def test_the_leaky_split_trains_on_every_test_sample():
    data = made_up(natural={"domain": np.tile([0, 1], 1250)})
    cuts = {
        leaky: federate(data, partition="domain", clients=6, seed=0, leaky=leaky) for leaky in (False, True)
    }
    for clean, leaky in zip(cuts[False].shares, cuts[True].shares, strict=True):
        assert not set(clean.test.index) & set(clean.train.index)
        assert set(leaky.test.index) <= set(leaky.train.index)
        assert len(leaky.test) == round(0.2 * len(leaky.train))


def test_domain_clients_are_tested_inside_their_domain_and_are_of_its_kind():
    domain = np.tile([0, 1], 1250)
    fleet = federate(made_up(natural={"domain": domain}), partition="domain", clients=6, seed=0)
    assert [share.cluster for share in fleet.shares] == [0, 0, 0, 1, 1, 1]
    for share in fleet.shares:
        assert set(domain[share.test.index]) == {share.cluster}
        train, test = (np.bincount(part.labels(), minlength=10) for part in (share.train, share.test))
        assert np.abs(test - train / 4).max() < 1


# --------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("partition", "clients", "settings", "kinds"),
    [
        ("iid", 4, {}, [0, 0, 0, 0]),
        ("dir-class", 4, {}, [-1, -1, -1, -1]),
        ("two-label-groups", 20, {}, [i // 2 for i in range(20)]),
        ("majority", 12, {"balanced": True}, [i % 10 for i in range(12)]),
        ("iid-of-n", 6, {"iid_clients": 2}, [0, 0, -1, -1, -1, -1]),
        ("majority", 4, {"balanced": True, "shift": "label", "offsets": (0, 1)}, [0, 1, 2, 3]),
        ("two-label-groups", 20, {"shift": "label", "offsets": (0, 1)}, list(range(20))),
    ],
)
def test_the_true_kind_of_a_client_is_what_the_partition_and_the_shift_know(
    partition, clients, settings, kinds
):
    fleet = federate(made_up(), partition=partition, clients=clients, seed=0, **settings)
    assert [share.cluster for share in fleet.shares] == kinds


# -------------------------------------------------------------------------------------- mistakes and sizes


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"partition": "dir-clas"}, "partition 'dir-clas' is not known; did you mean dir-class"),
        (
            {"partition": "dir-class", "alfa": 1.0},
            "partition.alfa is not known; did you mean alpha.*Allowed: alpha, minimum",
        ),
        ({"partition": "iid", "rng": 3}, "partition.rng is not known"),
        ({"partition": "dir-class", "alpha": "high"}, "partition.alpha is 'high'; allowed: a number"),
        (
            {"partition": "iid", "test_fraction": 1.0},
            "test_fraction is 1.0; allowed: a number above 0 and below 1",
        ),
        ({"partition": "natural"}, "partition = 'natural': own has no writer of its samples"),
        ({"partition": "domain"}, "partition = 'domain': own has no domain of its samples"),
    ],
)
def test_a_mistake_is_one_sentence(request_, sentence):
    with pytest.raises(UserError, match=sentence):
        federate(made_up(), clients=4, seed=0, **request_)


def test_regression_data_are_shared_out_without_classes():
    data = from_tensors(torch.rand(100, 3), torch.rand(100))
    fleet = federate(data, partition="iid", clients=4, seed=0)
    x, y = fleet.shares[0].train.tensors()
    assert (x.shape, y.shape, y.dtype) == ((20, 3), (20,), torch.float32)
    assert fleet.label_counts().shape == (4, 0)
    assert [len(share.test) for share in fleet.shares] == [5, 5, 5, 5]
    with pytest.raises(UserError, match="partition = 'shards': own has no classes; allowed: iid"):
        federate(data, partition="shards", clients=4, seed=0)


def test_samples_are_scaled_and_gathered_as_contiguous_float32():
    digits = load("digits", scaling="unit")
    x, y = federate(digits, partition="iid", clients=10, seed=0).shares[0].train.tensors()
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert x.shape[1:] == (1, 8, 8)
    assert (x.min(), x.max()) == (0, 1)
    assert y.dtype == torch.int64


def test_kmeans_clients_hold_out_their_own_samples(digits):
    fleet = federate(digits, partition="kmeans-pixels", clients=10, seed=0)
    assert sum(len(share.train) + len(share.test) for share in fleet.shares) == len(digits.train)
    assert not set(np.concatenate([share.test.index for share in fleet.shares])) & set(digits.test)


@pytest.mark.parametrize("partition", sorted(set(PARTITIONS) - {"natural", "domain", "kmeans-pixels"}))
def test_ten_thousand_clients_are_set_up_in_seconds(partition):
    few = {"minimum": 1} if partition in ("dir-class", "dir-class-capped", "dir-client-prior") else {}
    data = made_up(train=6000, test=1000)
    start = time.process_time()
    fleet = federate(data, partition=partition, clients=10_000, seed=0, shift="label", **few)
    assert len(fleet.shares) == 10_000
    assert time.process_time() - start < 5


# ------------------------------------------------------------------------------------------ a partition of one's own

HALVES = """
import numpy as np
from covey.data.partitions.cutting import DealtOut

def halves(labels, *, clients, rng, tests: str = "mix"):
    low, high = np.flatnonzero(labels < 5), np.flatnonzero(labels >= 5)
    parts = [*np.array_split(low, clients // 2), *np.array_split(high, clients - clients // 2)]
    return DealtOut(parts, truth=np.repeat([7, 3], [clients // 2, clients - clients // 2]), tests=tests)

def plain(labels, *, clients, rng):
    return np.array_split(np.arange(len(labels)), clients)
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(HALVES)
    return f"{tmp_path}/mine.py"


def test_an_own_partition_says_who_is_truly_alike_and_where_test_data_come_from(own):
    data = made_up(train=20, test=10)
    fleet = federate(data, partition=f"{own}:halves", clients=4, seed=0)
    assert [share.cluster for share in fleet.shares] == [7, 7, 3, 3]
    held = [set(share.train.labels().tolist()) for share in fleet.shares]
    assert all(labels <= set(range(5)) for labels in held[:2])
    assert [
        set(share.test.labels().tolist()) <= labels for share, labels in zip(fleet.shares, held, strict=True)
    ]
    assert all(set(share.test.index) <= set(data.test) for share in fleet.shares), (
        "mix: of the global test set"
    )


def test_with_the_rule_own_test_data_are_a_fifth_of_the_clients_own_and_not_trained_on(own):
    data = made_up(train=20, test=10)
    fleet = federate(data, partition=f"{own}:halves", clients=4, seed=0, tests="own")
    for share in fleet.shares:
        assert len(share.test) == 10  # of 50
        assert set(share.test.index) <= set(data.train)
        assert not set(share.test.index) & set(share.train.index)
    leaky = federate(data, partition=f"{own}:halves", clients=4, seed=0, tests="leaky")
    assert all(set(share.test.index) <= set(share.train.index) for share in leaky.shares)


def test_an_own_partition_may_be_a_plain_list_without_truth(own):
    fleet = federate(made_up(train=20, test=10), partition=f"{own}:plain", clients=4, seed=0)
    assert [share.cluster for share in fleet.shares] == [-1] * 4
    assert all(len(share.test) for share in fleet.shares)
