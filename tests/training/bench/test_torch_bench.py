"""Forward passes of PyTorch's bench: pictures with their channels next to one another, where the model takes it."""

import torch
from torch import Tensor, nn

from covey.training.bench.torch_bench import TorchBench
from covey.training.models import build
from covey.training.objective import Classification
from covey.training.rows import read_row

SHAPE = (3, 32, 32)


class Viewing(nn.Module):
    """A model as many write it: a view, which needs the rows of a picture one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 30 * 30, 10)

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.last(self.first(x).view(len(x), -1))
        return seen


def outputs(model: nn.Module, x: Tensor) -> tuple[TorchBench, Tensor, Tensor]:
    """The bench, what it puts out, and what the model does by itself."""
    bench = TorchBench(model, Classification())
    model.eval()
    with torch.no_grad():
        return bench, bench.forward(read_row(model), x), model(x)


def test_pictures_lie_channels_last_and_the_outputs_stay_the_same() -> None:
    model = build("cnn-cifar", input_shape=SHAPE, outputs=10)
    bench, found, expected = outputs(model, torch.randn(40, *SHAPE))
    assert bench.memory_format == torch.channels_last
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not found.is_inference()  # it may be trained through, as any other tensor


def test_a_model_that_views_keeps_its_pictures_as_they_are() -> None:
    bench, found, expected = outputs(Viewing(), torch.randn(40, *SHAPE))
    assert bench.memory_format == torch.contiguous_format
    assert torch.equal(found, expected)


def test_what_is_no_picture_has_no_channels() -> None:
    model = build("mlp", input_shape=(12,), outputs=3)
    bench, found, expected = outputs(model, torch.randn(5, 12))
    assert bench.memory_format == torch.contiguous_format
    assert torch.equal(found, expected)
