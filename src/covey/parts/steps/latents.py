"""A model's representation of a sample, before its last layer."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.training.bench.torch_bench import TorchBench


def last_layer(model: nn.Module) -> nn.Linear:
    """The layer whose input is the model's representation of a sample."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError("the method looks at what the last linear layer is given; this model has none")
    return linear[-1]


@contextmanager
def watched(model: nn.Module, seen: dict[str, Tensor]) -> Iterator[None]:
    """In this block, `seen["z"]` is the latest input of the last layer, a vector per sample."""
    handle = last_layer(model).register_forward_pre_hook(lambda _, given: seen.update(z=given[0].flatten(1)))
    try:
        yield
    finally:
        handle.remove()


def representations(bench: TorchBench, row: Tensor, x: Tensor) -> Tensor:
    """The representation of every sample by the model with that row."""
    seen: dict[str, Tensor] = {}
    with watched(bench.model, seen):
        parts = []
        for part in torch.split(x, 500):
            bench.forward(row, part)
            parts.append(seen["z"].cpu())
    return torch.cat(parts)
