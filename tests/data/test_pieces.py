"""Many clients in a few arrays: the same shares, sizes and counts as one object per client."""

import numpy as np
import pytest

from covey.data import federate, load
from covey.data.local_tests import _first_to_test
from covey.data.partitions.cutting import DealtOut, deal
from covey.data.pieces import Pieces, table_of_counts
from covey.data.types import Federation, Samples

PARTS = [np.array([4, 1]), np.array([], dtype=np.int64), np.array([3]), np.array([0, 2, 5])]


def lists(parts):
    return [part.tolist() for part in parts]


def test_pieces_are_the_parts_they_were_made_of():
    pieces = Pieces.of(PARTS)
    assert lists(pieces) == lists(PARTS)
    assert pieces.whole.tolist() == [4, 1, 3, 0, 2, 5]
    assert pieces.ends.tolist() == [2, 2, 3, 6]
    assert pieces.sizes.tolist() == [2, 0, 1, 3]
    assert pieces.owners.tolist() == [0, 0, 2, 3, 3, 3]
    assert lists(pieces[1:]) == lists(PARTS[1:])
    assert pieces[-1].tolist() == [0, 2, 5]
    assert lists(Pieces.of([])) == []
    with pytest.raises(IndexError):
        pieces[4]


def test_labels_are_counted_part_by_part():
    labels = np.array([0, 1, 1, 2, 0, 2])  # the parts hold labels {0, 1}, none, {2}, {0, 1, 2}
    counts = table_of_counts(labels, Pieces.of(PARTS), 3)
    assert counts.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1]]


def test_dealing_draws_the_same_orders_as_one_permutation_per_part():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, 60)
    counts = np.array([[2, 0, 5], [0, 0, 0], [1, 0, 0], [4, 6, 1]])
    dealt = deal(labels, counts, np.random.default_rng(1))

    rng = np.random.default_rng(1)
    shuffled = rng.permutation(len(labels))
    taken = np.zeros(3, np.int64)
    expected = []
    for row in counts:
        part = []
        for label, count in enumerate(row):
            of_label = shuffled[labels[shuffled] == label]
            part.extend(of_label[taken[label] : taken[label] + count])
            taken[label] += count
        expected.append(part)
    assert lists(dealt) == [rng.permutation(np.array(part, dtype=np.int64)).tolist() for part in expected]


def test_clients_without_test_data_give_their_first_sample():
    # Clients 0 and 2 give one; client 1 has a test sample already, client 3 only one sample, which it keeps.
    train = Pieces.of([np.array([10, 11]), np.array([12, 13]), np.array([14, 15, 16]), np.array([17])])
    nothing = np.array([], dtype=np.int64)
    test = Pieces.of([nothing, np.array([90, 91]), nothing, nothing])
    kept, tested = _first_to_test(train, test, np.array([True, False, True, False]))
    assert lists(kept) == [[11], [12, 13], [15, 16], [17]]
    assert lists(tested) == [[10], [90, 91], [14], []]


def test_a_cut_is_read_like_a_list():
    cut = DealtOut(iter(PARTS), truth=np.arange(4), tests="own")
    assert len(cut) == 4
    assert lists(cut) == lists(PARTS)
    assert lists(cut[:2]) == lists(PARTS[:2])


@pytest.mark.parametrize("shift", [None, "rotation"])
def test_shares_in_arrays_say_what_shares_one_by_one_say(shift):
    dataset = load("digits")
    packed = federate(dataset, partition="dir-client", clients=30, seed=2, shift=shift)
    single = Federation(dataset, tuple(packed.shares), Samples(dataset, dataset.test))
    assert np.array_equal(packed.label_counts(), single.label_counts())
    assert np.array_equal(packed.sizes(), single.sizes())
    assert packed.sizes()[3].tolist() == [len(packed.shares[3].train), len(packed.shares[3].test)]
    assert repr(packed) == repr(single)
    assert [s.cluster for s in packed.shares[:3]] == [s.cluster for s in single.shares[:3]]
    assert packed.names() == single.names() == ()


def test_nobody_has_no_sizes():
    dataset = load("digits")
    nobody = Federation(dataset, (), Samples(dataset, dataset.test))
    assert nobody.sizes().shape == (0, 2)
    assert nobody.label_counts().shape == (0, 10)
