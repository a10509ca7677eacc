"""The exact rule of every partition, on inputs small enough to work out by hand."""

import numpy as np
import pytest

from covey.data.partitions import PARTITIONS
from covey.data.partitions.classes import HACCS_PAIRS
from covey.data.partitions.cutting import cut_by_shares, deal, equal_sizes, top_up
from covey.errors import UserError


def balanced(classes, each):
    return np.repeat(np.arange(classes), each)


def cut(name, labels, *, clients, seed=0, **settings):
    """Label counts of each client, and the parts."""
    parts = PARTITIONS[name](labels, clients=clients, rng=np.random.default_rng(seed), **settings)
    return np.stack([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts]), parts


# ------------------------------------------------------------------------------------------- building blocks


def test_equal_sizes_give_the_remainder_to_the_first_clients():
    assert equal_sizes(11, 4).tolist() == [3, 3, 3, 2]


def test_a_class_is_cut_where_the_cumulative_shares_fall_rounded_down():
    # 10 * (0.5, 0.75, 1) = 5, 7.5, 10 -> places 5, 7, 10
    assert cut_by_shares(10, np.array([0.5, 0.25, 0.25])).tolist() == [5, 2, 3]
    assert cut_by_shares(7, np.array([0.1, 0.2, 0.0])).tolist() == [2, 5, 0]


def test_dealing_gives_exactly_the_counts_asked_for_and_no_sample_twice():
    labels = np.array([0, 1, 0, 1, 0, 1, 0])
    counts = np.array([[1, 2], [2, 0], [1, 1]])
    parts = deal(labels, counts, np.random.default_rng(0))
    assert [np.bincount(labels[part], minlength=2).tolist() for part in parts] == counts.tolist()
    assert sorted(np.concatenate(parts)) == list(range(7))


def test_a_short_client_is_topped_up_in_its_own_mix_by_the_richest_giver():
    # Client 2 has 1 sample and wants label 1 only; client 1 can spare 6 of it, client 0 only 1.
    counts = np.array([[5, 1], [0, 8], [0, 1]])
    after = top_up(counts, np.array([[1.0, 1], [1, 1], [0, 1]]), 2, np.random.default_rng(0))
    assert after.tolist() == [[5, 1], [0, 7], [0, 2]]


def test_top_up_takes_another_label_when_nobody_can_spare_the_wanted_one():
    counts = np.array([[9, 0], [0, 2], [0, 1]])
    after = top_up(counts, np.array([[1.0, 0], [0, 1], [0, 1]]), 2, np.random.default_rng(0))
    assert after.tolist() == [[8, 0], [0, 2], [1, 1]]


# ------------------------------------------------------------------------------------------------ partitions


def test_iid_cuts_equal_slices_with_the_remainder_to_the_first():
    _, parts = cut("iid", balanced(2, 7), clients=4)
    assert [len(part) for part in parts] == [4, 4, 3, 3]


def test_dir_class_cuts_every_class_by_its_own_draw_over_the_clients():
    labels = balanced(3, 200)
    counts, _ = cut("dir-class", labels, clients=4, seed=5, alpha=2.0, minimum=1)
    shares = np.random.default_rng(5).dirichlet([2.0] * 4, size=3)
    for label in range(3):
        ends = [int(200 * shares[label][: i + 1].sum()) for i in range(3)] + [200]
        assert counts[:, label].tolist() == np.diff([0, *ends]).tolist()


def test_dir_class_tops_up_the_smallest_clients_to_the_minimum():
    counts, _ = cut("dir-class", balanced(10, 100), clients=50, alpha=0.05, minimum=10)
    assert counts.sum(axis=1).min() == 10
    assert counts.sum(axis=0).tolist() == [100] * 10


def test_dir_class_capped_gives_full_clients_nothing_of_the_next_classes():
    for seed in range(20):
        counts, _ = cut("dir-class-capped", balanced(6, 100), clients=10, seed=seed, alpha=0.5, minimum=1)
        before = np.cumsum(counts, axis=1) - counts
        # 600 samples, 10 clients: whoever holds 60 gets no more.
        assert (counts[before >= 60] == 0).all()
        assert counts.sum() == 600


def test_dir_class_capped_draws_again_until_the_smallest_client_has_the_minimum():
    counts, _ = cut("dir-class-capped", balanced(10, 60), clients=10, alpha=1.0, minimum=40)
    assert counts.sum(axis=1).min() >= 40


@pytest.mark.parametrize("alpha", [1e-3, 1e-6])
def test_dir_class_capped_ends_when_no_draw_can_reach_the_minimum(alpha):
    counts, _ = cut("dir-class-capped", balanced(2, 50), clients=10, alpha=alpha, minimum=10)
    assert counts.sum(axis=1).tolist() == [10] * 10


def test_dir_client_has_fixed_sizes_and_uses_all_data_without_a_size():
    counts, _ = cut("dir-client", balanced(4, 25), clients=7, alpha=0.1)
    assert counts.sum(axis=1).tolist() == [15, 15, 14, 14, 14, 14, 14]
    assert counts.sum(axis=0).tolist() == [25] * 4
    counts, _ = cut("dir-client", balanced(4, 25), clients=7, size=3)
    assert counts.sum(axis=1).tolist() == [3] * 7


def test_dir_client_draws_from_the_clients_own_mix_while_labels_last():
    labels = balanced(5, 20000)
    counts, _ = cut("dir-client", labels, clients=3, seed=8, alpha=1.0, size=5000)
    mixes = np.random.default_rng(8).dirichlet([1.0] * 5, size=3)
    # 5,000 draws: five standard deviations are at most 5 * sqrt(0.25 / 5000) = 0.035.
    assert np.abs(counts / 5000 - mixes).max() < 0.035


def test_dir_client_prior_uses_all_data_in_nearly_equal_sizes():
    labels = np.repeat([0, 1, 2, 3], [400, 300, 200, 100])
    counts, _ = cut("dir-client-prior", labels, clients=20, alpha=1.0)
    assert counts.sum(axis=0).tolist() == [400, 300, 200, 100]
    assert np.abs(counts.sum(axis=1) - 50).max() <= 5


def test_shards_are_runs_of_the_sorted_labels():
    labels = np.tile([1, 0], 6)  # 6 of each label: 3 shards of 2 samples per label
    for seed in range(10):
        counts, parts = cut("shards", labels, clients=3, seed=seed, per_client=2)
        assert [len(part) for part in parts] == [4, 4, 4]
        assert (counts % 2 == 0).all()


def test_two_label_groups_give_group_l_the_classes_l_and_the_next():
    # 13 samples per class, each class used by 2 groups of 2 clients: parts of floor(13 / 4) = 3, one sample unused.
    counts, _ = cut("two-label-groups", balanced(3, 13), clients=6)
    expected = [[3, 3, 0], [3, 3, 0], [0, 3, 3], [0, 3, 3], [3, 0, 3], [3, 0, 3]]
    assert counts.tolist() == expected


def test_two_label_groups_as_published_have_one_class_each():
    counts, _ = cut("two-label-groups", balanced(3, 13), clients=6, pairs="published")
    assert counts.tolist() == [[6, 0, 0], [6, 0, 0], [0, 6, 0], [0, 6, 0], [0, 0, 6], [0, 0, 6]]


def test_two_label_groups_with_the_haccs_pairs():
    counts, _ = cut("two-label-groups", balanced(10, 40), clients=20, pairs="haccs")
    assert [tuple(np.flatnonzero(row)) for row in counts[::2]] == list(HACCS_PAIRS)
    assert (counts[counts > 0] == 10).all()
    assert np.bincount(np.ravel(HACCS_PAIRS)).tolist() == [2] * 10


def test_random_classes_cuts_each_class_evenly_among_those_who_wanted_it():
    for seed in range(10):
        counts, _ = cut("random-classes", balanced(10, 500), clients=20, seed=seed)
        wishes = np.random.default_rng(seed).integers(1, 10, size=20)
        assert (counts > 0).sum(axis=1).tolist() == wishes.tolist()
        assert counts.sum(axis=0).tolist() == [500] * 10
        for column in counts.T:
            assert np.ptp(column[column > 0]) <= 1


def test_iid_of_n_has_equal_sizes_and_at_most_two_classes_for_the_skewed_clients():
    counts, _ = cut("iid-of-n", balanced(10, 500), clients=20, iid_clients=5)
    sizes = counts.sum(axis=1)
    assert len(set(sizes)) == 1
    assert ((counts[:5] > 0).sum(axis=1) == 10).all()
    assert set((counts[5:] > 0).sum(axis=1)) == {1, 2}


def test_iid_of_n_as_published_shares_samples_and_gives_the_rest_to_the_last():
    counts, parts = cut("iid-of-n", balanced(10, 101), clients=20, iid_clients=4, published=True)
    assert counts.sum(axis=1).tolist() == [50] * 19 + [60]
    assert len(np.unique(np.concatenate(parts[:4]))) == 200
    assert len(np.unique(np.concatenate(parts))) < 1010
    assert all(len(np.unique(part)) == len(part) for part in parts)


def test_few_classes_takes_consecutive_classes_in_a_circle():
    labels = balanced(10, 5000)
    counts, _ = cut("few-classes", labels, clients=8, seed=3, fewest_classes=2, most_classes=2)
    rng = np.random.default_rng(3)
    weights = rng.integers(10, 101, size=8)
    rng.integers(2, 3, size=8)
    starts = rng.integers(10, size=8)
    sizes = [50000 * w // weights.sum() for w in weights]
    left = [5000] * 10
    for client, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        expected, label, step = [0] * 10, start, (size + 1) // 2
        while size:
            taken = min(step, left[label], size)
            expected[label] += taken
            left[label] -= taken
            size -= taken
            label = (label + 1) % 10
        assert counts[client].tolist() == expected


def test_few_classes_spreads_each_client_over_two_to_four_classes_while_they_last():
    counts, _ = cut("few-classes", balanced(10, 6000), clients=100)
    first = (counts[:20] > 0).sum(axis=1)
    assert set(first) == {2, 3, 4}


def test_majority_counts_are_the_shares_of_a_given_size():
    counts, _ = cut("majority", balanced(10, 1000), clients=20, size=100, balanced=True)
    for client, row in enumerate(counts):
        assert sorted(row[row > 0], reverse=True) == [75, 12, 7, 6]
        assert row.argmax() == client % 10
    shares = (0.7, 0.1, 0.1, 0.1)
    counts, _ = cut("majority", balanced(10, 4000), clients=20, size=500, shares=shares)
    assert all(sorted(row[row > 0], reverse=True) == [350, 50, 50, 50] for row in counts)


def test_majority_without_a_size_fills_the_most_wanted_label():
    counts, _ = cut("majority", balanced(10, 1000), clients=30)
    assert 980 <= counts.sum(axis=0).max() <= 1000
    sizes = counts.sum(axis=1)
    assert sizes.max() / sizes.min() < 0.9 / 0.8 * 1.1
    shares = np.sort(counts / sizes[:, None], axis=1)[:, :-5:-1]
    np.testing.assert_allclose(shares.mean(axis=0), (0.75, 0.12, 0.07, 0.06), atol=0.01)


def test_majority_as_published_takes_the_first_samples_so_that_sets_are_nested():
    labels = balanced(4, 100)
    counts, parts = cut("majority", labels, clients=12, published=True)
    for row, part in zip(counts, parts, strict=True):
        # B is 80 to 90, so floor(0.75 B) is 60 to 67.
        assert 60 <= row.max() <= 67
        for label in range(4):
            mine = np.sort(part[labels[part] == label])
            assert mine.tolist() == list(range(label * 100, label * 100 + len(mine)))


def test_m_labels_gives_every_client_equal_parts_of_m_labels():
    counts, _ = cut("m-labels", balanced(10, 1000), clients=12, m=3, size=90)
    assert all(row[row > 0].tolist() == [30, 30, 30] for row in counts)
    counts, _ = cut("m-labels", balanced(10, 1000), clients=12, m=10)
    assert (counts == 83).all()  # floor(1000 / 12)


def test_m_labels_as_published_lets_clients_share_samples():
    counts, parts = cut("m-labels", balanced(10, 200), clients=50, m=5, published=True)
    assert (counts[counts > 0] == 200).all()
    assert all(len(np.unique(part)) == 1000 for part in parts)


def test_natural_makes_every_group_a_client_and_draws_some_if_fewer_are_asked_for():
    groups = np.array([3, 1, 3, 0, 1, 3])
    natural = PARTITIONS["natural"]
    parts = natural(groups, clients=3, rng=np.random.default_rng(0))
    assert [sorted(part) for part in parts] == [[3], [1, 4], [0, 2, 5]]
    parts = natural(groups, clients=2, rng=np.random.default_rng(0), minimum=2)
    assert [sorted(part) for part in parts] == [[1, 4], [0, 2, 5]]


def test_domain_puts_clients_in_blocks_of_one_domain():
    labels, groups = np.tile([0, 1], 60), np.repeat([0, 1, 2], 40)
    parts = PARTITIONS["domain"](labels, groups, clients=6, rng=np.random.default_rng(0), minimum=5)
    assert [set(groups[part]) for part in parts] == [{0}, {0}, {1}, {1}, {2}, {2}]
    assert sorted(np.concatenate(parts)) == list(range(120))


def test_kmeans_pixels_makes_each_cluster_a_client():
    centres = np.array([[0.0, 0], [100, 0], [0, 100]])
    pixels = np.repeat(centres, [3, 5, 4], axis=0) + np.random.default_rng(0).normal(size=(12, 2))
    found = []
    for seed in range(10):  # K-means may stop in a local minimum; the clusters must come up
        parts = PARTITIONS["kmeans-pixels"](pixels, clients=3, rng=np.random.default_rng(seed))
        found.append(sorted(sorted(part) for part in parts))
    assert [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9, 10, 11]] in found


# ------------------------------------------------------------------------------------------- refused requests


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        (
            "iid",
            {"clients": 101},
            "clients = 101 with at least 1 sample each need 101 training samples, but there are 100: "
            "at most 100 clients",
        ),
        ("iid", {"clients": 0}, "clients is 0; allowed: a whole number, at least 1"),
        (
            "dir-class",
            {"clients": 11},
            "at least 10 samples each need 110 training samples, but there are 100: at most 10",
        ),
        ("dir-class", {"alpha": 0.0}, "alpha is 0.0; allowed: a number above 0"),
        ("dir-class-capped", {"minimum": 0}, "minimum is 0; allowed: a whole number, at least 1"),
        ("dir-client", {"size": 60}, "with at least 60 samples each need 120 training samples"),
        ("dir-client-prior", {"alpha": float("nan")}, "alpha is nan; allowed: a number above 0"),
        ("shards", {"per_client": 0}, "per_client is 0; allowed: a whole number, at least 1"),
        ("shards", {"clients": 60}, "with at least 2 samples each need 120"),
        ("two-label-groups", {"clients": 3}, "clients is 3; allowed: multiples of the 5 groups"),
        (
            "two-label-groups",
            {"pairs": "haccs"},
            "pairs is 'haccs', which needs exactly 10 classes; the data have 5",
        ),
        ("two-label-groups", {"pairs": "other"}, "pairs is 'other'; allowed: next, haccs, published"),
        (
            "random-classes",
            {"most_classes": 6},
            "most_classes is 6; allowed: from 1 to 5, the number of classes",
        ),
        ("random-classes", {"clients": 90}, "would get no sample; ask for fewer clients"),
        (
            "iid-of-n",
            {"iid_clients": 3},
            "iid_clients is 3; allowed: from 0 to 2, the number of clients",
        ),
        ("few-classes", {"most_classes": 9}, "most_classes is 9; allowed: from 1 to 5"),
        (
            "few-classes",
            {"fewest_classes": 5},
            "fewest_classes is 5; allowed: from 1 to 4, most_classes",
        ),
        (
            "majority",
            {"shares": (0.8, 0.3)},
            r"shares is \(0.8, 0.3\); allowed: numbers above 0 that add up to at most 1",
        ),
        ("majority", {"shares": (0.1,) * 6}, r"len\(shares\) is 6; allowed: from 1 to 5"),
        (
            "majority",
            {"size": 40, "shares": (1.0,)},
            "size = 40: the 2 clients would need 40 samples of label 3, but there are 20",
        ),
        ("m-labels", {"m": 6}, "m is 6; allowed: from 1 to 5, the number of classes"),
        ("m-labels", {"size": 100}, "size = 100: the 2 clients would need 40 samples of label"),
        (
            "m-labels",
            {"published": True},
            "200 samples of each of m = 5 labels, but the scarcest label has 20",
        ),
    ],
)
def test_what_cannot_be_met_is_refused_in_one_sentence(name, settings, sentence):
    clients = settings.pop("clients", 2) if name != "two-label-groups" else settings.pop("clients", 5)
    seed = 1 if name == "majority" else 0
    with pytest.raises(UserError, match=sentence):
        cut(name, balanced(5, 20), clients=clients, seed=seed, **settings)


def test_natural_and_domain_say_how_many_groups_there_are():
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match="clients = 4: there are only 3 natural groups"):
        PARTITIONS["natural"](np.array([0, 1, 2, 2]), clients=4, rng=rng)
    with pytest.raises(UserError, match="clients is 4; allowed: multiples of the 3 domains"):
        PARTITIONS["domain"](np.zeros(60, dtype=int), np.repeat([0, 1, 2], 20), clients=4, rng=rng)
