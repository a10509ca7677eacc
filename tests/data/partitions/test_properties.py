"""What holds for every partition whatever the data: no sample twice, nobody empty, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.data.local_tests import from_pool, hold_out
from covey.data.partitions import PARTITIONS
from covey.errors import UserError

BY_LABELS = sorted(set(PARTITIONS) - {"natural", "domain", "kmeans-pixels"})
USES_ALL = {"iid", "dir-class", "dir-class-capped", "dir-client", "dir-client-prior", "shards"}

# Label sets with gaps (label 2 may be missing) and very unequal classes.
label_lists = st.lists(st.sampled_from([0, 0, 0, 0, 1, 1, 3, 4]), min_size=40, max_size=150).map(np.array)


@st.composite
def requests(draw):
    name = draw(st.sampled_from(BY_LABELS))
    options = {"clients": draw(st.integers(1, 12))}
    if name in {"dir-class", "dir-class-capped", "dir-client-prior"}:
        options["minimum"] = draw(st.integers(1, 4))
    if name.startswith("dir-"):
        options["alpha"] = draw(st.sampled_from([1e-8, 0.01, 0.5, 100.0]))
    if name == "majority":
        options["shares"] = draw(st.sampled_from([(0.75, 0.25), (1.0,)]))
    if name == "iid-of-n":
        options["iid_clients"] = draw(st.integers(0, options["clients"]))
    if name == "m-labels":
        options["m"] = draw(st.integers(1, 3))
    if name == "few-classes":
        options.update(fewest_classes=1, most_classes=2)
    return name, options


@settings(max_examples=120, deadline=None)
@given(labels=label_lists, request=requests(), seed=st.integers(0, 2**32))
def test_a_partition_gives_no_sample_twice_leaves_nobody_empty_and_repeats_itself(labels, request, seed):
    name, options = request
    try:
        parts = PARTITIONS[name](labels, rng=np.random.default_rng(seed), **options)
    except UserError:
        return  # refused in one sentence; any other error fails the test
    again = PARTITIONS[name](labels, rng=np.random.default_rng(seed), **options)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert len(parts) == options["clients"]
    assert min(map(len, parts)) >= options.get("minimum", 1)
    given_out = np.concatenate(parts)
    assert len(np.unique(given_out)) == len(given_out)
    assert given_out.min() >= 0
    assert given_out.max() < len(labels)
    if name in USES_ALL:
        assert len(given_out) == len(labels)


@pytest.mark.parametrize("name", BY_LABELS)
def test_every_partition_meets_an_ordinary_request(name):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 300))
    parts = PARTITIONS[name](labels, clients=20, rng=np.random.default_rng(0))
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    if name in USES_ALL:
        assert sum(map(len, parts)) == 3000


@settings(max_examples=100, deadline=None)
@given(labels=label_lists, clients=st.integers(1, 20), seed=st.integers(0, 2**32), share=st.floats(0.05, 0.6))
def test_local_test_data_come_once_from_the_test_set_in_the_training_mix(labels, clients, seed, share):
    rng = np.random.default_rng(seed)
    is_test = rng.random(len(labels)) < share
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if len(train) < clients:
        return
    parts = [train[place] for place in PARTITIONS["iid"](labels[train], clients=clients, rng=rng)]
    kept, tests = from_pool(parts, labels, test, rng)
    given_out = np.concatenate(tests)
    assert len(np.unique(given_out)) == len(given_out)
    for part, left, tested in zip(parts, kept, tests, strict=True):
        assert len(left) >= 1
        assert set(labels[tested]) <= set(labels[part])
        if len(part) > 1:
            assert len(tested) >= 1
        if set(tested) & set(train):  # its own sample, only where the test set had none for it
            assert len(tested) == 1
            assert sorted([*left, *tested]) == sorted(part)
        else:
            assert np.array_equal(left, part)


@settings(max_examples=100, deadline=None)
@given(labels=label_lists, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_held_out_data_are_the_asked_share_of_every_label(labels, fraction, seed):
    (kept,), (tested,) = hold_out([np.arange(len(labels))], labels, fraction, np.random.default_rng(seed))
    n = len(labels)
    assert sorted([*kept, *tested]) == list(range(n))
    assert len(tested) == min(max(round(fraction * n), 1), n - 1)
    for label in np.unique(labels):
        wanted = (labels == label).sum() * len(tested) / n
        assert abs((labels[tested] == label).sum() - wanted) < 1.0000001
