"""Taking noise away: what stays, what goes, and what it does for the clusters."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from covey.methods.embedding import denoising as module
from covey.methods.embedding.denoising import denoise, median_of_noise, shrinkage
from covey.methods.embedding.ward import Ward
from covey.parts.group.centroids import settled


def noisy(n: int, bits: int, flip: float, kinds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % kinds
    patterns = rng.random((kinds, bits)) < 0.5
    return (patterns[truth] ^ (rng.random((n, bits)) < flip)).astype(np.uint8), truth


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "bits"), [(100, 200), (40, 3000), (1000, 50)])
def test_pure_noise_leaves_nothing(n: int, bits: int, seed: int) -> None:
    points, _ = noisy(n, bits, 0.2, kinds=1, seed=seed)
    found, _ = denoise(points, np.full(n, 0.2))
    assert found.shape[1] <= 1  # the law's edge is sharp, but not for every draw


def test_four_kinds_leave_three_directions() -> None:
    points, truth = noisy(100, 200, 0.1, kinds=4)
    found, noise = denoise(points, np.full(100, 0.1))
    assert found.shape == (100, 3)
    assert noise == pytest.approx(3 * 0.09 / 0.64, rel=0.1)  # three directions, hardly shrunk
    assert adjusted_rand_score(truth, Ward().fit_predict(found)) == 1


def test_kinds_within_kinds_are_found_where_raw_bits_show_two() -> None:
    # Two far pairs, each of two nearer kinds: like the rotations 0, 180 | 90, 270.
    rng = np.random.default_rng(1)
    base = rng.random((2, 200)) < 0.5
    patterns = np.stack([base[k // 2] ^ (rng.random(200) < 0.2) for k in range(4)])
    truth = np.arange(100) % 4
    points = (patterns[truth] ^ (rng.random((100, 200)) < 0.15)).astype(np.uint8)
    raw = Ward().fit_predict(points)
    clean = Ward().fit_predict(denoise(points, np.full(100, 0.15))[0])
    assert len(np.unique(raw)) == 2
    assert adjusted_rand_score(truth, clean) > 0.95


def test_clients_with_different_noise_can_be_compared() -> None:
    points, truth = noisy(120, 400, 0.0, kinds=4)
    flips = np.where(np.arange(120) % 3 == 0, 0.25, 0.05)
    points ^= (np.random.default_rng(2).random(points.shape) < flips[:, None]).astype(np.uint8)
    found, noise = denoise(points, flips)
    cut = Ward().cut(found, np.random.default_rng(0), noise)
    assert adjusted_rand_score(truth, settled(found, cut.labels)) == 1


def test_noise_of_which_nobody_told_is_found_too() -> None:
    points, truth = noisy(100, 600, 0.25, kinds=4)  # says nothing of its flips
    found, noise = denoise(points, np.zeros(100))
    assert found.shape == (100, 3)
    assert noise == pytest.approx(3 * 0.25 * 0.75, rel=0.3)
    assert adjusted_rand_score(truth, Ward().cut(found, np.random.default_rng(0), noise).labels) > 0.95


def test_the_median_of_pure_noise_is_marchenko_and_pasturs() -> None:
    rng = np.random.default_rng(0)
    for n, d in ((200, 400), (300, 300), (50, 2000)):
        squares = np.linalg.svd(rng.normal(size=(n, d)), compute_uv=False) ** 2 / max(n, d)
        assert median_of_noise(min(n, d) / max(n, d)) == pytest.approx(np.median(squares), rel=0.05)


def test_shrinkage_is_nothing_below_the_edge_and_everything_far_above() -> None:
    factor = shrinkage(np.array([0.5, 1.4, 1.6, 3.0, 100.0]), 0.25)  # the edge is 1.5
    assert factor[:2].tolist() == [0, 0]
    assert 0 < factor[2] < factor[3] < factor[4] < 1
    # y = 3, r = 1/4: sqrt((9 - 1.25)^2 - 1) / 9.
    assert factor[3] == pytest.approx(np.sqrt(7.75**2 - 1) / 9)
    assert factor[4] == pytest.approx(1, abs=1e-3)


def test_equal_clients_and_a_single_one_leave_nothing() -> None:
    for points in (np.ones((5, 16), np.uint8), np.ones((1, 16), np.uint8)):
        found, noise = denoise(points, np.zeros(len(points)))
        assert not found.any()
        assert noise == 0


def test_every_way_to_the_directions_gives_the_same_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = noisy(90, 120, 0.1, kinds=3)
    flips = np.full(90, 0.1)
    small, _ = denoise(points, flips)
    monkeypatch.setattr(module, "BLOCK", 7)
    np.testing.assert_allclose(np.abs(denoise(points, flips)[0]), np.abs(small), atol=1e-8)
    monkeypatch.setattr(module, "SMALL", 100)  # more bits than that, fewer clients
    np.testing.assert_allclose(np.abs(denoise(points, flips)[0]), np.abs(small), atol=1e-8)
    monkeypatch.setattr(module, "SMALL", 50)  # more of both: the noise level is found in another way
    leading, _ = denoise(points, flips)
    np.testing.assert_allclose(np.abs(leading[:, :2]), np.abs(small[:, :2]), rtol=0.1, atol=0.05)
