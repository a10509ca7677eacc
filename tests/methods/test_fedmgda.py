"""FedMGDA+ against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.fedmgda import CommonDescent, fedmgda, shortest
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.gram import products
from covey.parts.steps import Train


def unit_gram(seed: int, clients: int, width: int) -> np.ndarray:
    d = np.random.default_rng(seed).normal(size=(clients, width))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    return d @ d.T


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_three_clients_against_a_fine_grid(seed: int, eps: float) -> None:
    gram = unit_gram(seed, 3, 2 + seed)
    preferred = np.random.default_rng(seed).dirichlet([2, 2, 2])
    found = shortest(gram, preferred, eps)
    steps = np.arange(-200, 201) / 200 * max(eps, 1e-12)
    a, b = (axis.ravel() for axis in np.meshgrid(preferred[0] + steps, preferred[1] + steps))
    grid = np.stack([a, b, 1 - a - b], axis=1)
    allowed = (grid >= 0).all(1) & (np.abs(grid - preferred) <= eps + 1e-12).all(1)
    lengths = np.einsum("ni,ij,nj->n", grid[allowed], gram, grid[allowed])
    assert found @ gram @ found <= lengths.min() + 1e-9
    assert found @ gram @ found == pytest.approx(lengths.min(), abs=5e-3 * eps + 1e-9)  # the grid's spacing
    assert found.sum() == pytest.approx(1)
    assert found.min() >= -1e-12
    assert np.abs(found - preferred).max() <= eps + 1e-12


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(2, 20), st.integers(1, 30), st.sampled_from([0.02, 0.1, 1.0]))
def test_no_small_exchange_between_two_clients_makes_it_shorter(seed, clients, width, eps) -> None:
    """The optimality condition: the slope of whom one could take from is never above that of whom one could give to."""
    gram = unit_gram(seed, clients, width)
    preferred = np.random.default_rng(seed).dirichlet(np.ones(clients))
    found = shortest(gram, preferred, eps)
    slope = gram @ found
    can_give = found > np.maximum(preferred - eps, 0) + 1e-7
    can_take = found < np.minimum(preferred + eps, 1) - 1e-7
    if can_give.any() and can_take.any():
        assert slope[can_give].max() <= slope[can_take].min() + 1e-6


def test_one_round_worked_by_hand(a_round) -> None:
    """Two orthogonal updates of length 5 and 13, eps 1: both get 1/2, and the step is eta (d_1 + d_2) / 2."""
    replies = {0: ((3, 4, 0, 7), 30), 1: ((0, 0, 13, 1), 10)}
    now = a_round((0, 0, 0, 0), replies=replies, trainable=3)
    mixings = CommonDescent(eta=2.0, eps=1.0)(now)
    new = apply_mixings(mixings, now.models, [reply.vector for reply in now.replies])
    assert new[0].tolist() == pytest.approx([0.6, 0.8, 1.0, 5.5], abs=1e-6)  # the buffer: 30 to 10


def test_eps_zero_is_the_samples_weights_on_unit_steps(a_round) -> None:
    now = a_round((1, 1), replies={0: ((1, 3), 30), 1: ((-4, 1), 10)})
    mixings = CommonDescent(eta=1.0, eps=0.0)(now)
    new = apply_mixings(mixings, now.models, [reply.vector for reply in now.replies])
    assert new[0].tolist() == pytest.approx([1 - 0.25, 1 + 0.75])


def test_products_do_not_depend_on_the_block() -> None:
    vectors = list(torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)))
    whole = torch.stack(vectors).double().numpy()
    assert products(vectors, block=7) == pytest.approx(whole @ whole.T)


def test_a_step_is_never_longer_than_eta(digits_fleet) -> None:
    fleet = digits_fleet()
    start = fleet.start()
    state = run_rounds(fedmgda(Train(lr=0.5), eta=0.7), fleet, rounds=1)
    assert float((state.models[0] - start).norm()) <= 0.7 + 1e-5


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="eps is 2"):
        fedmgda(Train(), eps=2)
    with pytest.raises(UserError, match="eta is 0"):
        fedmgda(Train(), eta=0)
