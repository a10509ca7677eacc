"""Narrower networks: which numbers they have, and that they compute what the whole one computes without the rest."""

import pytest
import torch
from torch import nn

from covey.errors import UserError
from covey.training.models import build
from covey.training.narrow import Narrow
from covey.training.rows import Layout, read_row, write_row


def test_the_upper_left_part_of_every_tensor() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    # row: W1 is 0..7 (two columns a unit), b1 8..11, W2 12..23 (four columns a unit), b2 24..26
    layout = Layout.of(model)
    half = Narrow.of(model, 0.5)
    assert half.columns(layout).tolist() == [0, 1, 2, 3, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 26]
    rolled = Narrow.of(model, 0.5, first=3)  # units 3 and 0
    assert rolled.columns(layout).tolist() == [6, 7, 0, 1, 11, 8, 15, 12, 19, 16, 23, 20, 24, 25, 26]
    assert Narrow.of(model, 0.26).picks["0.weight"].shape == (2, 2)  # ceil(1.04)
    assert Narrow.of(model, 0.5, whole=2).columns(layout).tolist() == list(range(27))


def test_a_channel_behind_flatten_is_all_of_its_pixels() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(2 * 4, 1))
    assert Narrow.of(model, 0.5).picks["2.weight"].tolist() == [[0, 1, 2, 3]]
    assert Narrow.of(model, 0.5, first=1).picks["2.weight"].tolist() == [[4, 5, 6, 7]]


@pytest.mark.parametrize("name", ["mlp", "lenet5", "cnn-fashion"])
@pytest.mark.parametrize("first", [0, 5])
def test_it_gives_what_the_whole_network_gives_with_zeros_elsewhere(name: str, first: int) -> None:
    shape, x = (1, 28, 28), torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    whole = build(name, input_shape=shape, outputs=10).eval()
    layout, row = Layout.of(whole), read_row(whole)
    narrow = Narrow.of(whole, 0.4, first=first)
    small = narrow.network().eval()
    write_row(small, row[narrow.columns(layout)])
    write_row(whole, narrow.scale(row, layout))
    with torch.no_grad():
        assert torch.allclose(small(x), whole(x), atol=1e-5)


def test_frozen_layers_stay_whole() -> None:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, train=["3"])
    assert len(Narrow.of(model, 0.5).columns(Layout.of(model))) == 650


def test_other_networks_are_refused_in_one_sentence() -> None:
    with pytest.raises(
        UserError, match="a VisionTransformer, cannot be made narrower; allowed: linear layers"
    ):
        Narrow.of(build("vit", input_shape=(1, 28, 28), outputs=10), 0.5)
