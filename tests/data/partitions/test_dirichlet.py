"""How hard the Dirichlet definitions are at equal alpha, against figures computed from the distributions themselves."""

import numpy as np
import pytest

from covey.data.partitions import PARTITIONS


def majority_and_labels(name, classes, alpha, **settings):
    """Mean share of the most frequent label, and mean number of labels above 1 %, over 400 clients."""
    labels = np.repeat(np.arange(classes), 400_000 // classes)
    parts = PARTITIONS[name](labels, clients=400, rng=np.random.default_rng(1), alpha=alpha, **settings)
    shares = np.stack([np.bincount(labels[part], minlength=classes) / len(part) for part in parts])
    return shares.max(axis=1).mean(), (shares > 0.01).sum(axis=1).mean()


@pytest.mark.parametrize(
    ("classes", "alpha", "share", "count"),
    [(10, 0.05, 0.78, 2.7), (10, 0.5, 0.38, 7.7), (100, 0.05, 0.30, 12), (100, 0.5, 0.08, 32)],
)
def test_dir_client_draws_with_concentration_alpha_for_each_label(classes, alpha, share, count):
    # 250 of 1,000 samples per client: hardly any label is used up.
    found = majority_and_labels("dir-client", classes, alpha, size=250)
    assert found == pytest.approx((share, count), rel=0.08)


@pytest.mark.parametrize(
    ("classes", "alpha", "share", "count"),
    [(10, 0.05, 0.97, 1.2), (10, 0.5, 0.78, 2.7), (100, 0.05, 0.97, 1.2), (100, 0.5, 0.76, 3.0)],
)
def test_dir_client_prior_is_far_harder_at_equal_alpha(classes, alpha, share, count):
    found = majority_and_labels("dir-client-prior", classes, alpha)
    assert found == pytest.approx((share, count), rel=0.08)


def test_dir_client_prior_brings_the_mean_mix_close_to_the_data_set():
    labels = np.repeat(np.arange(10), np.arange(1, 11) * 200)
    parts = PARTITIONS["dir-client-prior"](labels, clients=100, rng=np.random.default_rng(0), alpha=0.3)
    sizes = np.array([len(part) for part in parts])
    # Wanted sizes are 110; a label cut in proportion brings them back to it when the means match.
    assert np.abs(sizes - 110).max() <= 20
    assert sizes.sum() == len(labels)


def test_dir_class_sizes_vary_as_sums_of_gamma_variables_do():
    # Client sizes are n * sum over 10 classes of Dir(alpha): coefficient of variation about 1/sqrt(10 alpha).
    labels = np.repeat(np.arange(10), 40_000)
    parts = PARTITIONS["dir-class"](labels, clients=400, rng=np.random.default_rng(0), alpha=0.5, minimum=1)
    sizes = np.array([len(part) for part in parts])
    assert sizes.std() / sizes.mean() == pytest.approx(1 / np.sqrt(5), rel=0.12)
