"""The frozen part of a model: known by the digest of its file, sent once to everybody who lacks it, and in no row."""

import copy
import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from covey.errors import UserError, user_error

Network = TypeVar("Network", bound=nn.Module)
SHOWN = 12  # names that a sentence lists


@dataclass(frozen=True, kw_only=True, eq=False)
class Frozen:
    """The tensors by name. Whoever holds a model of the same run may hold the same memory: nobody writes to it."""

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """What is frozen in `model`: not a copy."""
        return cls(tensors=dict(frozen_tensors(model)))

    @property
    def size(self) -> int:
        """How many numbers."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of these numbers: what travels to somebody who lacks them."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, types, shapes and numbers; empty where nothing is frozen."""
        if not self.tensors:
            return ""
        mark = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            mark.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
            mark.update(_bytes_of(tensor).data)
        return mark.hexdigest()

    def file(self) -> bytes:
        """As a safetensors file."""
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        return safetensors.torch.save(whole)

    @classmethod
    def from_file(cls, content: bytes, digest: str | None = None) -> Self:
        """What `file` wrote; a ValueError for any other content, also for one of another digest."""
        try:
            found = cls(tensors=safetensors.torch.load(content))
        except safetensors.SafetensorError as error:
            raise ValueError("the frozen part of the model is no safetensors file") from error
        if digest is not None and found.digest != digest:
            raise ValueError("the frozen part of the model is not the one that its digest says")
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """The numbers as plain bytes by name, without a copy."""
        return {name: _bytes_of(tensor) for name, tensor in self.tensors.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], model: nn.Module) -> Self:
        """What `arrays` gave, with the types and shapes that a hollow model has."""
        there = dict(frozen_tensors(model))
        tensors = {
            name: torch.from_numpy(arrays[name]).view(t.dtype).view(t.shape) for name, t in there.items()
        }
        return cls(tensors=tensors)

    def put_into(self, model: nn.Module) -> None:
        """Makes these the frozen tensors of the model, without a copy; a ValueError where they are of another model."""
        there = dict(frozen_tensors(model))
        wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in there.items()}
        if wanted != {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in self.tensors.items()}:
            raise ValueError("the frozen part is of another model")
        with torch.no_grad():
            for name, tensor in there.items():
                tensor.data = self.tensors[name].to(tensor.device)


def _bytes_of(tensor: Tensor) -> np.ndarray:
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.asarray(numbers)


def frozen_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters without a gradient, and the stored buffers of modules in which nothing trains; tied ones once."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter
    for name, buffer in model.named_buffers():
        if is_frozen_buffer(model, name) and is_stored(model, name):
            yield name, buffer


def is_frozen_buffer(model: nn.Module, name: str) -> bool:
    """Whether a buffer belongs to something frozen: its module's own parameters decide, else those around it."""
    module, inside = name.rpartition(".")[0], False
    while True:
        owner = model.get_submodule(module)
        if own := list(owner.parameters(recurse=inside)):
            return not any(parameter.requires_grad for parameter in own)
        if not module:
            return False
        module, inside = (module.rpartition(".")[0], True) if inside else (module, True)


def is_stored(model: nn.Module, name: str) -> bool:
    """Whether a buffer is in the state_dict; the others are made by the network itself."""
    module, _, own = name.rpartition(".")
    return own not in model.get_submodule(module)._non_persistent_buffers_set


def frozen_norms(model: nn.Module) -> list[nn.Module]:
    """Modules whose statistics are frozen: in training, too, they work as in evaluation."""
    found = {name.rpartition(".")[0] for name, _ in model.named_buffers() if is_frozen_buffer(model, name)}
    return [model.get_submodule(name) for name in sorted(found)]


def copy_sharing(model: Network) -> Network:
    """A copy of the model with its own trained tensors, and the same memory for what is frozen."""
    shared: dict[int, object] = {}
    for _, tensor in frozen_tensors(model):
        again = tensor.detach()
        shared[id(tensor)] = (
            nn.Parameter(again, requires_grad=False) if isinstance(tensor, nn.Parameter) else again
        )
    return copy.deepcopy(model, shared)


def hollow(model: Network) -> Network:
    """A copy of the model in which every frozen tensor has its shape and takes no memory."""
    again = copy_sharing(model)
    for _, tensor in frozen_tensors(again):
        tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
    return again


def train_only(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes every parameter but those that a pattern names: a parameter, a module, or such as "*.bias"."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for pattern in patterns:
        if not any(named_by(pattern, name) for name in names):
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise UserError(
                f"model.train has {pattern!r}, which is no parameter or module of the model; allowed: patterns of "
                f"{', '.join(names[:SHOWN])}{more}"
            )
    model.requires_grad_(False)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if any(named_by(pattern, name) for pattern in patterns):
            parameter.requires_grad_(True)


def stored_tensors(path: str, setting: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file that a setting names."""
    with user_error(f"{setting} is {path!r}, which is no safetensors file that can be read"):
        return safetensors.torch.load_file(path)


def named_by(pattern: str, name: str) -> bool:
    """Whether a pattern means the parameter of that name."""
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
