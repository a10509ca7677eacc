"""Clustered sampling: urns that are exactly full, and draws that favour nobody."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.round import run_rounds, stream
from covey.methods.clustered_sampling import clustered_sampling
from covey.parts.selection.clustered_sampling import (
    angles,
    draw,
    light_groups,
    sketch,
    urns_by_similarity,
    urns_by_size,
)
from covey.parts.steps import Train

sizes_of_clients = st.lists(st.integers(1, 500), min_size=1, max_size=40).map(np.array)


def check_urns(urns: np.ndarray, counts: np.ndarray, m: int) -> None:
    """Every urn is full, and all urns together hold m n_k of client k: E[weight of k] = n_k / n, exactly."""
    assert urns.shape == (m, len(counts))
    assert (urns >= 0).all()
    assert (urns.sum(axis=1) == counts.sum()).all()
    assert (urns.sum(axis=0) == m * counts).all()


@given(sizes_of_clients, st.integers(1, 12))
def test_urns_by_size_are_unbiased(counts: np.ndarray, m: int) -> None:
    check_urns(urns_by_size(counts, m), counts, m)


@settings(max_examples=50)
@given(sizes_of_clients, st.integers(1, 12), st.integers(0, 99))
def test_urns_by_similarity_are_unbiased(counts: np.ndarray, m: int, seed: int) -> None:
    rng = stream(seed)
    updates = rng.normal(size=(len(counts), 5)) * rng.integers(2, size=(len(counts), 1))  # some have none yet
    check_urns(urns_by_similarity(counts, updates, m, rng), counts, m)


def test_urns_by_size_worked_by_hand() -> None:
    """Sizes 4 3 2 1, two urns of 10: the largest brings 8, then 6 (2 here, 4 there), then 4, then 2."""
    assert urns_by_size(np.array([1, 2, 3, 4]), 2).tolist() == [[0, 0, 2, 8], [2, 4, 4, 0]]


def test_clients_whose_updates_point_alike_share_an_urn() -> None:
    updates = np.array([[1, 0.01], [0.01, 1], [2, 0], [0, 3], [1, 0], [0, 1.0]])
    urns = urns_by_similarity(np.full(6, 5), updates, 2, stream(0))
    assert {frozenset(np.flatnonzero(urn).tolist()) for urn in urns} == {
        frozenset({0, 2, 4}),
        frozenset({1, 3, 5}),
    }


def test_groups_never_weigh_more_than_an_urn_holds() -> None:
    groups = light_groups(np.array([4, 4, 4, 1]), np.zeros((4, 4)), room=8)
    assert sorted(len(group) for group in groups) in ([1, 1, 2], [2, 2])
    assert sorted(i for group in groups for i in group) == [0, 1, 2, 3]


def test_angles() -> None:
    found = angles(np.array([[1.0, 0], [0, 2], [-3, 0], [0, 0]]))
    half = np.pi / 2
    assert found == pytest.approx(
        np.array([[0, half, np.pi, 0], [half, 0, half, 0], [np.pi, half, 0, 0], [0] * 4])
    )


@pytest.mark.parametrize("by", ["size", "similarity"])
def test_over_20000_draws_every_client_has_its_share(by: str) -> None:
    """E[weight of k] = n_k / n. A client's weight in one draw of m has variance at most p (1 - p) / m."""
    rng = stream(7)
    counts, m, draws = rng.integers(10, 400, size=25), 6, 20_000
    updates = rng.normal(size=(25, 8))
    urns = urns_by_size(counts, m) if by == "size" else urns_by_similarity(counts, updates, m, rng)
    weight = np.zeros(25)
    for _ in range(draws):
        for client in draw(urns, rng):
            weight[client] += 1 / m
    p = counts / counts.sum()
    error = np.sqrt(p * (1 - p) / m / draws)
    assert (np.abs(weight / draws - p) < 4.5 * error).all()


def test_sketches_keep_angles() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 20_000))
    b = 0.6 * a + 0.8 * b
    exact = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    x, y = (sketch(torch.from_numpy(v), seed=3) for v in (a, b))
    assert x @ y / np.linalg.norm(x) / np.linalg.norm(y) == pytest.approx(exact, abs=4 / np.sqrt(512))


def test_a_client_drawn_twice_counts_twice(digits_fleet) -> None:
    """One client with nearly all the data fills nearly all urns; the method still runs and averages."""
    state = run_rounds(clustered_sampling(Train(lr=0.1), by="similarity"), digits_fleet(clients=5), rounds=3)
    assert set(state.memory["sampling.sketches"]) <= set(range(5))
    assert torch.isfinite(state.models).all()
