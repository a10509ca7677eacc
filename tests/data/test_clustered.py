"""Shifts of any strength, in groups of any size."""

import numpy as np
import pytest
import torch

from covey.data import federate, load
from covey.data.clustered import group_of, permuted
from covey.data.effects import EFFECTS, Effect, applied, rotated
from covey.data.partitions.even import quantity
from covey.errors import UserError


def pictures(channels: int = 1) -> torch.Tensor:
    return torch.rand(6, channels, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_grows_with_its_strength_from_nothing(name: str) -> None:
    x, places = pictures(), torch.arange(6)
    far = [float((EFFECTS[name](x, s, places) - x).abs().mean()) for s in (0.0, 0.3, 0.9)]
    assert far[0] == pytest.approx(0, abs=1e-6)
    assert far[1] > 1e-5
    assert far[1] < far[2] or name == "rotation"


def test_effects_by_hand() -> None:
    x = torch.full((1, 1, 4, 4), 0.25)
    place = torch.zeros(1, dtype=torch.long)
    assert float(EFFECTS["brightness"](x, 0.4, place)[0, 0, 0, 0]) == pytest.approx(0.45)
    assert float(EFFECTS["contrast"](x, 1.0, place)[0, 0, 0, 0]) == pytest.approx(0.5 - 0.25 * 0.1)
    assert float(EFFECTS["colour"](x, 0.5, place)[0, 0, 0, 0]) == pytest.approx(
        0.5
    )  # half way to its negative
    assert EFFECTS["colour"](pictures(3), 1.0, place)[:, 1].equal(pictures(3)[:, 0])
    assert torch.allclose(rotated(pictures(), 90), torch.rot90(pictures(), 1, dims=(2, 3)), atol=1e-5)
    assert float(EFFECTS["blur"](x, 1.0, place).mean()) == pytest.approx(0.25)


def test_a_samples_noise_is_its_own_in_every_selection() -> None:
    x, places = pictures(), torch.tensor([3, 9, 4, 1, 0, 7])
    whole = applied((Effect("noise", 0.5),), x, torch.zeros(6), places)
    part = applied((Effect("noise", 0.5),), x[2:4], torch.zeros(2), places[2:4])
    assert torch.equal(whole[2:4], part)


def test_an_effect_on_some_classes_leaves_the_others() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    found = applied((Effect("brightness", 1.0, (1,)),), pictures(), labels, torch.arange(6))
    same = (found == pictures()).flatten(1).all(dim=1)
    assert same.tolist() == [True, False, True, True, False, True]


def test_labels_trade_places() -> None:
    assert permuted(10, 0.4, 1, "permute") == (1, 2, 3, 0, 4, 5, 6, 7, 8, 9)
    assert permuted(10, 0.4, 1, "swap") == (1, 0, 3, 2, 4, 5, 6, 7, 8, 9)
    assert permuted(4, 0.0, 1, "permute") == (0, 1, 2, 3)


def test_groups_take_turns_or_have_their_sizes() -> None:
    assert group_of(5, 2, ()).tolist() == [0, 1, 0, 1, 0]
    assert group_of(10, 3, (5, 3, 2)).tolist() == [0] * 5 + [1] * 3 + [2] * 2


def test_a_fleet_of_heterogeneous_groups() -> None:
    """Group 0 is as stored; group 2 has the whole strength and labels moved by two."""
    settings = {
        "clusters": 3,
        "images": ("brightness",),
        "strength": 0.5,
        "label_permutation": 0.5,
        "sizes": (2, 1, 1),
    }
    data = federate(load("digits"), partition="iid", clients=8, seed=0, shift="clustered", **settings)
    assert [share.cluster for share in data.shares] == [0, 0, 0, 0, 1, 1, 2, 2]
    shifts = [share.train.shift for share in data.shares]
    assert (shifts[0].effects, shifts[0].permutation) == ((), ())
    assert shifts[4].effects == (Effect("brightness", 0.25),)
    assert shifts[6].effects == (Effect("brightness", 0.5),)
    stored = data.dataset.labels()[data.shares[6].train.index]
    moved = np.where(stored < 5, (stored + 2) % 5, stored)
    assert data.shares[6].train.labels().tolist() == moved.tolist()
    x, y = data.shares[6].train.tensors()
    assert x.shape[0] == len(y)
    assert data.shares[6].train.select(np.array([3])).tensors()[0].equal(x[3:4])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"images": ("fog",)}, "images names 'fog'; allowed: brightness, .*"),
        ({"sizes": (1.0,)}, r"sizes is \[1.0\]; allowed: one number above 0 for each of the 2 clusters"),
        ({"strength": 2.0}, "strength is 2.0; allowed: a number from 0 to 1"),
    ],
)
def test_a_mistake_is_one_sentence(settings, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        federate(load("digits"), partition="iid", clients=4, seed=0, shift="clustered", **settings)


def test_quantities_are_skewed_and_nobody_is_empty() -> None:
    labels = np.zeros(1000, np.int64)
    parts = list(quantity(labels, clients=10, rng=np.random.default_rng(0), alpha=0.3))
    sizes = sorted(len(part) for part in parts)
    assert (sum(sizes), sizes[0] >= 1, sizes[-1] > 250) == (1000, True, True)
    assert len(np.unique(np.concatenate(parts))) == 1000
