"""LSTM, TCN and decoder: nobody sees what follows, padding changes nothing, and sizes are as worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.training.models import build
from covey.training.models.sequences import Dilated

NAMES = ["lstm", "tcn", "decoder"]
SMALL = {"lstm": {"hidden": 12}, "tcn": {"width": 8, "depth": 2}, "decoder": {"width": 16, "depth": 1}}


def small(name: str, shape: tuple[int, ...], outputs: int, **settings: int) -> nn.Module:
    return build(name, input_shape=shape, outputs=outputs, seed=1, **SMALL[name], **settings).eval()


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_does_not_change_an_answer(name: str) -> None:
    model = small(name, (6,), 9)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 2]])
    changed = torch.tensor([[3, 1, 4, 8, 8, 8]])
    one, other = model(tokens), model(changed)
    assert one.shape == (1, 9, 6)
    assert torch.allclose(one[:, :, :3], other[:, :, :3], atol=1e-6)
    assert not torch.allclose(one[:, :, 3:], other[:, :, 3:], atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_padding_does_not_change_the_class_of_a_text(name: str) -> None:
    model = small(name, (6,), 3, vocabulary=9)
    with_padding = model(torch.tensor([[3, 1, 4, 0, 0, 0]]))
    assert with_padding.shape == (1, 3)
    assert torch.allclose(with_padding, model(torch.tensor([[3, 1, 4]])), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(6, 25), (1, 32, 20)])
def test_series_and_spectrograms_are_classified(name: str, shape: tuple[int, ...]) -> None:
    assert small(name, shape, 4)(torch.rand(3, *shape)).shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # tokens; two layers with four gates of 100 and two biases each; head
        ("lstm", 37 * 8 + 4 * (100 * 8 + 100 * 100 + 200) + 4 * (100 * 200 + 200) + 101 * 37),
        # tokens; four blocks of two convolutions; head
        ("tcn", 37 * 32 + 8 * (3 * 32 * 32 + 32) + 33 * 37),
        # tokens and places; four blocks of 12 w^2 weights and 13 w biases and norms; last norm; head
        ("decoder", (37 + 32) * 160 + 4 * (12 * 160**2 + 13 * 160) + 2 * 160 + 161 * 37),
    ],
)
def test_sizes(name: str, expected: int) -> None:
    model = build(name, input_shape=(32,), outputs=37)
    assert sum(part.numel() for part in model.parameters()) == expected


def test_a_block_of_the_tcn_by_hand() -> None:
    """One channel, gap 1, weights (1, 2, 4) from the oldest to the newest, then (0, 0, 1): relu(x + the first)."""
    block = Dilated(1, 1, 0.0)
    with torch.no_grad():
        for layer, weights in ((block.first, [1.0, 2.0, 4.0]), (block.second, [0.0, 0.0, 1.0])):
            layer.weight.copy_(Tensor(weights).view(1, 1, 3))
            layer.bias.zero_()
    x = Tensor([1.0, 0.0, 2.0]).view(1, 1, 3)
    # first convolution: 4, 2, 1 + 8 = 9; added to x
    assert block(x).flatten().tolist() == [5.0, 2.0, 11.0]


def test_pictures_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.name is 'tcn', which takes tokens"):
        build("tcn", input_shape=(3, 8, 8), outputs=2)
