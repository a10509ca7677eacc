"""Banded matrix factorisation: numbers of jax-privacy 1.0's toeplitz module, matrices by hand, and the accountant."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.privacy.accountant import Sampling, noise_for
from covey.privacy.apply import made_private
from covey.privacy.banded import InTurn, coefficients, correlated
from covey.privacy.settings import Private
from covey.testing import CLIENTS, check_method, small_fleet


def strategy(bands: int, rounds: int) -> np.ndarray:
    """C, as a matrix."""
    found = np.zeros((rounds, rounds))
    for back, value in enumerate(coefficients(bands)):
        found += value * np.eye(rounds, k=-back)
    return found


def test_coefficients_and_error_are_those_of_jax_privacy() -> None:
    """`optimal_max_error_strategy_coefs`, of length 1; mean of `per_query_error` (the optimum has 5.077)."""
    four = [0.8197048313256959, 0.40985241566284797, 0.30738931174713596, 0.25615775978927996]
    np.testing.assert_allclose(coefficients(4), four, rtol=1e-12)
    prefix = np.tril(np.ones((25, 25))) @ np.linalg.inv(strategy(4, 25))
    assert (prefix**2).sum(axis=1).mean() == pytest.approx(5.166542756653134)
    prefix = np.tril(np.ones((40, 40))) @ np.linalg.inv(strategy(8, 40))
    assert (prefix**2).sum(axis=1).mean() == pytest.approx(5.305625066059979)


@pytest.mark.parametrize(
    ("per_round", "bands", "gains"),
    [(500, 4, (-20, -7, 19)), (100, 4, (-27, -21, -3)), (100, 8, (-32, -21, 11))],
)
def test_what_bands_gain_is_what_the_guarantees_say(
    per_round: int, bands: int, gains: tuple[int, ...]
) -> None:
    """Of 2,000 clients, over 25 rounds at delta 1e-5: the noise in the models beside that of independent noise."""
    rate, sums = per_round / 2000, np.tril(np.ones((25, 25)))

    def in_models(epsilon: float, bands: int) -> float:
        sampling = Sampling(kind="poisson" if bands * rate < 1 else "none", rate=bands * rate)
        noise = noise_for(epsilon, 1e-5, sampling=sampling, times=math.ceil(25 / bands))
        told = sums @ np.linalg.inv(strategy(bands, 25))
        return float(noise * np.sqrt((told**2).sum(axis=1).mean()))

    found = [round(100 * (in_models(e, bands) / in_models(e, 1) - 1)) for e in (16.0, 8.0, 2.0)]
    assert tuple(found) == gains


def test_a_client_every_b_rounds_moves_rows_that_nobody_shares() -> None:
    """`minsep_sensitivity_squared`: 1, 2 and 6.672 for 1, 2 and 7 participations, 4 bands, 25 rounds."""
    matrix = strategy(4, 25)
    for rounds, squared in (([0], 1.0), ([0, 4], 2.0), (list(range(0, 25, 4)), 6.671916010498687)):
        assert (matrix[:, rounds].sum(axis=1) ** 2).sum() == pytest.approx(squared)


def test_noise_of_the_rounds_is_the_inverse_of_the_strategy() -> None:
    fresh = np.random.default_rng(0).standard_normal((9, 3))
    now: Any = SimpleNamespace(memory={})
    told = [correlated(now, torch.from_numpy(z), 0, bands=4).numpy() for z in fresh]
    np.testing.assert_allclose(told, np.linalg.inv(strategy(4, 9)) @ fresh, atol=1e-12)
    assert now.memory["private.earlier noise 0"].shape == (3, 3)


def test_cohorts_take_turns() -> None:
    turn = InTurn(rate=1.0, bands=3)
    assert [turn.turn(number, range(7)) for number in (1, 2, 3, 4)] == [[0, 3, 6], [1, 4], [2, 5], [0, 3, 6]]


def banded(**private: Any) -> Any:
    settings = Private(**{"epsilon": 8.0, "clip": 0.5, "bands": 3, **private})
    return made_private(fedavg(Train(batches=1), per_round=2), settings, clients=CLIENTS, rounds=7)


def test_a_run_costs_every_client_what_the_accountant_says() -> None:
    """Seven rounds in three cohorts: three sums of the first, two of the others, each at three times the chance."""
    method, fleet = banded(), small_fleet()
    run_rounds(method, fleet, rounds=7)
    times = {client: sum(told.values()) for client, told in fleet.ledger.told.items()}
    assert times == {client: (3, 2, 2)[client % 3] for client in range(CLIENTS)}
    [loss] = fleet.ledger.told[0]
    assert loss.rate == pytest.approx(3 * 2 / CLIENTS)
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(loss.rate, GaussianDpEvent(loss.noise)), 3))
    assert 7.9 < accountant.get_epsilon(1e-5) <= 8.001


def test_bands_keep_the_contract() -> None:
    check_method(banded())


@pytest.mark.parametrize(
    "private", [{"clip": "adaptive"}, {"level": "local"}, {"secure": True}, {"sampling": "method"}], ids=str
)
def test_what_does_not_go_with_bands_is_one_sentence(private: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"private\.bands is 3, which needs"):
        banded(**private)
