"""What PyTorch computes in float64, and whether the answer hangs on a near-tie of a ReLU or a maximum."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

NEAR = 2e-6  # relative to the largest value: float32 may decide otherwise here


def row_of(model: nn.Module) -> NDArray[np.float32]:
    """Parameters, then float buffers."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    return np.concatenate([t.detach().numpy().ravel() for t in [*model.parameters(), *buffers]])


def by_parameter(model: nn.Module) -> Iterator[tuple[str, slice]]:
    """Where each parameter lies in a row, by its name."""
    start = 0
    for name, parameter in model.named_parameters():
        yield name, slice(start, start + parameter.numel())
        start += parameter.numel()


def load_row(model: nn.Module, row: NDArray[Any]) -> nn.Module:
    filled = copy.deepcopy(model).to(torch.float64)
    start = 0
    with torch.no_grad():
        buffers = [b for b in filled.buffers() if b.is_floating_point()]
        for tensor in [*filled.parameters(), *buffers]:
            piece = row[start : start + tensor.numel()]
            tensor.copy_(torch.from_numpy(piece.astype(np.float64)).reshape(tensor.shape))
            start += tensor.numel()
    return filled


class Ties:
    """Watches ReLUs and 2 x 2 maxima for values that are nearly equal."""

    def __init__(self) -> None:
        self.found = False

    def relu(self, x: torch.Tensor) -> None:
        scale = x.abs().max().item() or 1.0
        self.found |= bool((x.abs() < NEAR * scale).any())

    def pool(self, x: torch.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, *_: Any) -> None:
        """Two equal zeros after a ReLU are no tie: neither gets a gradient."""
        down, across = (padding, padding) if isinstance(padding, int) else padding
        wide = F.pad(x, (across, across, down, down), value=-1e9).flatten(0, 1).unsqueeze(1)
        windows = F.unfold(wide, kernel, stride=stride or kernel).transpose(1, 2).flatten(0, 1)
        if windows.shape[1] > 1:
            first, second = windows.topk(2, dim=1).values.T
            near = first - second < NEAR * (x.abs().max().item() or 1.0)
            self.found |= bool((near & (first != 0)).any())


@contextmanager
def watch() -> Iterator[Ties]:
    """All ReLUs and max-poolings run inside are watched."""
    ties, relu, pool = Ties(), F.relu, F.max_pool2d

    def watched_relu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        ties.relu(x.detach())
        return relu(x)

    def watched_pool(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        plain = {"stride": kwargs.get("stride"), "padding": kwargs.get("padding", 0)}
        ties.pool(x.detach(), *args, **({} if len(args) > 1 else plain))
        return pool(x, *args, **kwargs)

    with mock.patch.object(F, "relu", watched_relu), mock.patch.object(F, "max_pool2d", watched_pool):
        yield ties


def loss_of(model: nn.Module, x: NDArray[Any], y: NDArray[Any], objective: str) -> torch.Tensor:
    out = model(torch.from_numpy(x).double())
    if objective == "cross-entropy":
        return F.cross_entropy(out, torch.from_numpy(y))
    return F.mse_loss(out, torch.from_numpy(y).double().reshape(out.shape))


def gradient(
    model: nn.Module, row: NDArray[Any], x: NDArray[Any], y: NDArray[Any], objective: str
) -> tuple[float, NDArray[np.float64], bool]:
    """(loss, gradient as one row, whether a near-tie was met), in float64."""
    exact = load_row(model, row)
    with watch() as ties:
        loss = loss_of(exact, x, y, objective)
        loss.backward()
    grads = [p.grad.numpy().ravel() for p in exact.parameters() if p.grad is not None]
    return loss.item(), np.concatenate(grads), ties.found


def rounded(
    model: nn.Module, row: NDArray[Any], x: NDArray[Any], y: NDArray[Any], objective: str
) -> NDArray[np.float32]:
    """The gradient as PyTorch computes it in float32."""
    same = load_row(model, row).float()
    out = same(torch.from_numpy(x))
    if objective == "cross-entropy":
        F.cross_entropy(out, torch.from_numpy(y)).backward()
    else:
        F.mse_loss(out, torch.from_numpy(y).reshape(out.shape)).backward()
    return np.concatenate([p.grad.numpy().ravel() for p in same.parameters() if p.grad is not None])
