"""The multiplication behind every method: right, the same bits always, and no copy of the bank."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix, random_array

from covey.parts.mix.combine import combine


def test_two_clients_by_hand() -> None:
    bank = torch.tensor([[9.0, 9.0]])
    replies = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    new = combine([csr_matrix([[0.0, 0.25, 0.75]])], torch.cat([bank, replies]))
    assert new.tolist() == [[3.25, 6.5]]
    assert new.dtype == torch.float32


def test_factors_apply_first_one_first() -> None:
    rows = torch.tensor([[1.0], [10.0]])
    swap, only_first = csr_array([[0.0, 1.0], [1.0, 0.0]]), csr_array([[1.0, 0.0], [1.0, 0.0]])
    assert combine([swap, only_first], rows).tolist() == [[10.0], [10.0]]
    assert combine([only_first, swap], rows).tolist() == [[1.0], [1.0]]


def test_stacked_in_thought_is_stacked_in_fact() -> None:
    bank, reply = torch.randn(3, 50), torch.randn(50)
    factor = random_array((3, 4), density=0.6, rng=np.random.default_rng(0), format="csr")
    assert torch.equal(combine([factor], [bank, reply]), combine([factor], torch.cat([bank, reply[None]])))


@given(seed=st.integers(0, 1000), n=st.integers(1, 12), depth=st.integers(1, 3), block=st.integers(1, 40))
def test_equals_the_dense_product_for_any_block(seed: int, n: int, depth: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(n, n + 2)] + [(n, n)] * (depth - 1)
    factors = [random_array(shape, density=0.5, rng=rng, format="csr") for shape in shapes]
    rows = torch.from_numpy(rng.normal(size=(n + 2, 33)).astype(np.float32))
    dense = rows.double().numpy()
    for factor in factors:
        dense = factor.toarray() @ dense
    new = combine(factors, rows, block=block)
    np.testing.assert_allclose(new.numpy(), dense, rtol=1e-6, atol=1e-6)
    assert torch.equal(new, combine(factors, rows))


def test_the_order_in_which_weights_are_stored_does_not_change_a_bit() -> None:
    rng = np.random.default_rng(3)
    columns, weights = np.arange(40), rng.random(40)
    rows = torch.from_numpy(rng.normal(size=(40, 500)).astype(np.float32))
    shuffled = rng.permutation(40)
    there = csr_array((weights, columns, [0, 40]), shape=(1, 40))
    back = csr_array((weights[shuffled], columns[shuffled], [0, 40]), shape=(1, 40))
    assert torch.equal(combine([there], rows), combine([back], rows))


def test_a_broken_row_without_weight_spoils_nothing() -> None:
    rows = torch.tensor([[float("nan")], [2.0]])
    assert combine([csr_array(np.array([[0.0, 1.0]]))], rows).tolist() == [[2.0]]


def test_in_place_needs_no_second_bank() -> None:
    bank = torch.randn(20, 100_000)
    ring = csr_array((np.eye(20) + np.roll(np.eye(20), 1, 0) + np.roll(np.eye(20), -1, 0)) / 3)
    expected = combine([ring, ring], bank)
    tracemalloc.start()
    combine([ring, ring], bank, out=bank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(bank, expected)
    assert peak < 3 * (1 << 18) * 8 + 1_000_000 < 20 * 100_000 * 8


def test_picking_rows_first_changes_no_bit() -> None:
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(rng.normal(size=(6, 300)).astype(np.float32))
    picks = csr_array((np.ones(3), [2, 3, 5], [0, 1, 2, 3]), shape=(3, 6))
    average = csr_array(rng.random((3, 3)))
    assert torch.equal(combine([picks, average], rows), combine([average], rows[[2, 3, 5]]))


def test_a_wrong_shape_names_the_factor() -> None:
    with pytest.raises(ValueError, match="factor 1 has 3 columns but is applied to 2 rows"):
        combine([csr_array(np.eye(2)), csr_array(np.eye(3))], torch.zeros(2, 1))
