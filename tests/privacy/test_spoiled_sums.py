"""A client that does not keep to the protocol of secure sums costs a round, never the model."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.core.round import Method, Reply, RoundEnd, run_rounds
from covey.errors import RunError, UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.privacy.apply import made_private
from covey.privacy.secure_steps import LEAST_SHARE, SecureUpdate
from covey.privacy.settings import Private
from covey.testing import CLIENTS, small_fleet
from tests.hostile.liar import Lie, misshapen, with_liars


def method() -> Method:
    settings = Private(secure=True, clip=0.5, sampling="method")
    train = Train(epochs=1, lr=0.1, batch=32)
    return made_private(fedavg(train, per_round=CLIENTS), settings, clients=CLIENTS, rounds=3)


def spoiling(reply: Reply) -> Reply:
    """As large as whole numbers of 32 bits can be."""
    return replace(reply, stats={name: np.full_like(v, 2**31 - 1) for name, v in reply.stats.items()})


def rounds_with(lie: Lie, *, until: int = 3) -> list[torch.Tensor]:
    """The models after each of three rounds, in the first `until` of which client 3 lies."""
    models: list[torch.Tensor] = []
    fleet = with_liars(small_fleet(lanes=True), lambda reply: lie(reply) if len(models) < until else reply)

    def watch(end: RoundEnd) -> None:
        models.append(end.state.models)

    run_rounds(method(), fleet, rounds=3, watchers=[watch], patience=1)
    return models


def test_a_sum_longer_than_its_updates_can_be_is_left_out() -> None:
    first, second, third = rounds_with(spoiling, until=1)
    assert len(first) == 0  # nobody's answer counted yet
    assert torch.linalg.vector_norm(third - second) <= 0.51  # no farther than the clip length


def test_where_it_goes_on_the_run_ends_and_says_why() -> None:
    with pytest.raises(
        RunError, match=r"the sum of 8 updates is .* times too long: one of its clients does not"
    ):
        rounds_with(spoiling)


def test_numbers_of_another_length_are_refused_and_the_others_are_added_up() -> None:
    assert len(rounds_with(misshapen)) == 3


def test_too_few_whole_numbers_of_noise_are_refused() -> None:
    """A discrete Gaussian of 0.3 is 0 in 99 of 100 draws: its variance is 2 / (e^(1 / 0.18) + 2), a twelfth of 0.09."""
    with pytest.raises(UserError, match=r"noise of 0\.3 whole numbers to a secure sum, fewer than 2"):
        SecureUpdate(step=Train(), clip=1.0, share=0.3)
    for scale, found in ((0.3, 2 / (math.exp(1 / 0.18) + 2)), (LEAST_SHARE, LEAST_SHARE**2)):
        whole = np.arange(-60, 61)
        chance = np.exp(-(whole**2) / (2 * scale**2))
        assert (chance * whole**2).sum() / chance.sum() == pytest.approx(found, rel=1e-4)
    # Kairouz et al. (2021), Thm. 5: a sum of n differs by at most 10 sum of exp(-2 pi^2 s^2 k / (k + 1)), k < n
    assert 10 * 1e6 * math.exp(-(math.pi**2) * LEAST_SHARE**2) < 1e-9
