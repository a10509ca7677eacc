"""A model is one flat row, `[what trains | float buffers]`; what is frozen is beside it (`frozen.py`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from covey.streams import stream
from covey.training.frozen import Frozen, Network, copy_sharing, is_frozen_buffer

BufferPolicy = Literal["average", "local"]
MOVED = 0.01  # standard deviation by which further starts of what is not redrawn differ


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its row; integer buffers are in no row, because nobody may average them.

    `buffers` says what becomes of the float buffers (BatchNorm statistics): "average" mixes them with the
    parameters, "local" lets every client keep its own. `frozen` numbers are in no row.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    size: int
    buffers: BufferPolicy = "average"
    frozen: int = 0

    @staticmethod
    def of(model: nn.Module, buffers: BufferPolicy = "average") -> Layout:
        """The layout of `model`: what trains in `named_parameters` order, then float buffers."""
        tensors = dict(_tensors(model))
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return Layout(
            names=tuple(tensors),
            shapes=tuple(tuple(t.shape) for t in tensors.values()),
            trainable=trainable,
            size=sum(t.numel() for t in tensors.values()),
            buffers=buffers,
            frozen=Frozen.of(model).size,
        )

    @property
    def has_buffers(self) -> bool:
        return self.size > self.trainable

    @cached_property
    def spans(self) -> dict[str, slice]:
        """The columns of each tensor, by its name."""
        ends = [0, *accumulate(math.prod(shape) for shape in self.shapes)]
        return {name: slice(*span) for name, span in zip(self.names, pairwise(ends), strict=True)}

    @cached_property
    def variances(self) -> dict[str, slice]:
        """The columns of the variances that BatchNorm keeps, which divide by their roots: below zero all is NaN."""
        return {name: span for name, span in self.spans.items() if name.split(".")[-1] == "running_var"}

    def tensors(self, row: Tensor) -> dict[str, Tensor]:
        """The tensors of a row by their names: views, so that writing into them writes into the row."""
        shaped = zip(self.spans.items(), self.shapes, strict=True)
        return {name: row[span].view(shape) for (name, span), shape in shaped}

    def after_noise(self, row: Tensor) -> Tensor:
        """A row to which noise was added, with variances that it made negative at 0."""
        row = row.clone() if self.variances else row
        for columns in self.variances.values():
            row[columns].clamp_(min=0.0)
        return row


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a row with their names, in row order."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, parameter
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and not is_frozen_buffer(model, name):
            yield name, buffer


def read_row(model: nn.Module) -> Tensor:
    """A copy of the model's tensors, but for the frozen ones, as one float32 row."""
    parts = [t.detach().reshape(-1).to("cpu", torch.float32) for _, t in _tensors(model)]
    return torch.cat(parts) if parts else torch.zeros(0)


def write_row(model: nn.Module, row: Tensor) -> None:
    """Copies a row into the model's tensors."""
    at = 0
    with torch.no_grad():
        for _, tensor in _tensors(model):
            tensor.copy_(row[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()


def flatten(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Moves all row tensors of `model` into one flat tensor and all gradients into another, and returns both.

    Loading a model is then one copy, and an SGD update one operation, whatever the number of layers.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    flat = read_row(model).to(device)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    gradient = torch.zeros(trainable, device=device)
    buffers = dict(model.named_buffers())
    at = 0
    for name, tensor in list(_tensors(model)):
        view = flat[at : at + tensor.numel()].view_as(tensor)
        if name in buffers:
            owner = model.get_submodule(name.rpartition(".")[0])
            owner._buffers[name.rpartition(".")[2]] = view
        else:
            tensor.data = view
            tensor.grad = gradient[at : at + tensor.numel()].view_as(tensor)
        at += tensor.numel()
    return flat, gradient


def activations(model: nn.Module, sample: Tensor) -> int:
    """Numbers that one sample leaves behind on its way through the model: the outputs of its layers, added up."""
    total = 0

    def count(module: nn.Module, inputs: object, output: object) -> None:  # noqa: ARG001
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel()

    again = copy_sharing(model).eval()
    for module in again.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    with torch.no_grad():
        again(sample)
    return total


def fresh_row(model: nn.Module, seed: int, number: int) -> Tensor:
    """Start number `number` for the model: 0 is the model as it was given, others are drawn anew.

    Layers are redrawn by their own `reset_parameters` from the stream ("start", number). Of a model with a frozen part
    only layers that train as a whole are: what else trains fits what is frozen, and is moved a little.
    """
    if number == 0:
        return read_row(model)
    again = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "start", number).integers(2**62)))
        drawn: set[int] = set()
        for module in again.modules():
            reset = getattr(module, "reset_parameters", None)
            own = list(module.parameters(recurse=False))
            if callable(reset) and all(parameter.requires_grad for parameter in own):
                reset()
                drawn |= {id(parameter) for parameter in own}
        if Frozen.of(model).tensors:
            for parameter in again.parameters():
                if parameter.requires_grad and id(parameter) not in drawn:
                    parameter.data += MOVED * torch.randn(parameter.shape)
    return read_row(again)


class ModelMaker(NamedTuple):
    """How a method's own model can be made elsewhere: a name in the registry CHILD_MODELS, and plain settings."""

    name: str
    settings: Mapping[str, Any]


@runtime_checkable
class MadeAs(Protocol):
    """A model with a note of how it was made."""

    covey_maker: ModelMaker


def made_as(model: Network, maker: ModelMaker) -> Network:
    """The model, with a note of how it was made."""
    cast(MadeAs, model).covey_maker = maker
    return model


def maker_of(model: nn.Module) -> ModelMaker | None:
    """How the model was made, if that was noted."""
    return model.covey_maker if isinstance(model, MadeAs) else None
