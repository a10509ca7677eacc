"""Narrower copies of a network: some units of every hidden layer, and of every tensor the numbers between these."""

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn, Self

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.training.rows import Layout

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


class Scaled(nn.Module):
    """What a narrowed layer gives, times a factor (HeteroFL's Scaler)."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        return self.times * x


@dataclass(frozen=True, kw_only=True, eq=False)
class Narrow:
    """Which numbers of a network a narrower one has.

    layers: of the network, one after another, by their names. picks: of each tensor the places that stay, as an array
    of the narrow tensor's shape. times: by which factor a narrowed layer's outputs are scaled.
    """

    layers: dict[str, nn.Module]
    picks: dict[str, Tensor]
    times: dict[str, float]

    @classmethod
    def of(
        cls, model: nn.Module, width: float, *, first: int = 0, whole: int = 1, scaled: bool = True
    ) -> Self:
        """Of n units of a hidden layer, ceil(width n): from unit `first` on, and after the last again from the first.

        What a narrowed layer gives is scaled by n / kept before a norm (HeteroFL's scaler), else by its square root, so
        that its variance is at first that of the whole layer: the whole factor explodes through several layers.

        The last `whole` layers with weights keep all their units: one is the layer that gives the outputs. So do frozen
        layers, which a device holds anyway.
        """
        layers = chain(model)
        weighted = [name for name, layer in layers.items() if isinstance(layer, WEIGHTED)]
        normed = {name for name, behind in pairwise(layers) if isinstance(layers[behind], NORMS)}
        found = cls(layers=layers, picks={}, times={})
        units, many = torch.zeros(0, dtype=torch.long), 0  # kept of the layer before, and of how many
        for name, layer in layers.items():
            if isinstance(layer, WEIGHTED):
                count, inside = layer.weight.shape[:2]
                of_each = inside // many if many else 0  # a unit's numbers behind a Flatten
                inputs = (
                    (units[:, None] * of_each + torch.arange(of_each)).flatten()
                    if many
                    else torch.arange(inside)
                )
                full = name in weighted[len(weighted) - whole :] or not layer.weight.requires_grad
                kept = count if full else math.ceil(width * count)
                units, many = (
                    (torch.arange(kept) + first) % count if kept < count else torch.arange(count),
                    count,
                )
                found.times[name] = (count / kept) ** (1.0 if name in normed else 0.5) if scaled else 1.0
                found.pick(name, "weight", layer.weight, units, inputs)
                if layer.bias is not None:
                    found.pick(name, "bias", layer.bias, units)
            elif isinstance(layer, NORMS):
                for own, tensor in (*layer.named_parameters(), *layer.named_buffers()):
                    if tensor.dim():
                        found.pick(name, own, tensor, units)
            elif tensors := [
                *layer.named_parameters(),
                *layer.named_buffers(),
            ]:  # one's own, in which nothing trains
                if len(units) < many:
                    refuse(name, layer)
                units, many = units[:0], 0
                for own, tensor in tensors:
                    found.pick(name, own, tensor, torch.arange(len(tensor)))
        return found

    def pick(self, layer: str, own: str, tensor: Tensor, rows: Tensor, columns: Tensor | None = None) -> None:
        """Notes which places of a tensor stay."""
        places = torch.arange(tensor.numel()).view(tensor.shape)[rows]
        self.picks[f"{layer}.{own}" if layer else own] = places if columns is None else places[:, columns]

    def columns(self, layout: Layout) -> Tensor:
        """Which columns of a row the narrow row has, in its order."""
        return torch.cat([span.start + self.picks[name].flatten() for name, span in layout.spans.items()])

    def scale(self, row: Tensor, layout: Layout) -> Tensor:
        """The row with zeros outside, as the whole network must have it to give what the narrow one gives."""
        masked = torch.zeros_like(row)
        columns = self.columns(layout)
        masked[columns] = row[columns]
        for name, tensor in layout.tensors(masked).items():
            tensor.mul_(self.times.get(name.rpartition(".")[0], 1.0))
        return masked

    def network(self) -> nn.Sequential:
        """The narrow network, with the frozen numbers of the whole one; a row has the others."""
        made: list[nn.Module] = []
        for name, layer in self.layers.items():
            small = copy.deepcopy(layer)
            for own, tensor in (*layer.named_parameters(), *layer.named_buffers()):
                places = self.picks.get(f"{name}.{own}" if name else own)
                if places is None:
                    continue
                values = tensor.detach().flatten()[places]
                if own in small._buffers:
                    small._buffers[own] = values
                else:
                    small._parameters[own] = nn.Parameter(values, requires_grad=tensor.requires_grad)
            made.append(small)
            if self.times.get(name, 1.0) != 1.0:
                made.append(Scaled(self.times[name]))
        return nn.Sequential(*made)


def chain(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a network in which each takes what the one before gives, by their names; any other is refused."""
    if not isinstance(model, nn.Sequential):
        found = {"": model}
    else:
        found = {}
        for name, part in model.named_children():
            inner = chain(part) if isinstance(part, nn.Sequential) else {"": part}
            found |= {f"{name}.{own}".rstrip("."): layer for own, layer in inner.items()}
    for name, layer in found.items():
        fixed = not any(parameter.requires_grad for parameter in layer.parameters())
        if not (fixed or isinstance(layer, (*WEIGHTED, *NORMS))) or getattr(layer, "groups", 1) != 1:
            refuse(name, layer)
    return found


def refuse(name: str, layer: nn.Module) -> NoReturn:
    """Says which part of a network stands in the way."""
    raise UserError(
        f"the network's part {name or 'itself'!r}, a {type(layer).__name__}, cannot be made narrower; allowed: linear "
        "layers, convolutions and batch norms one after another, such as mlp, lenet5 or cnn-cifar"
    )
