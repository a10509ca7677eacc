"""The papers' networks by name: `build("lenet5", input_shape=(1, 28, 28), outputs=10)`; logits out."""

import copy
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from covey.errors import UserError
from covey.settings.catalogue import MODELS
from covey.training.adapters import adapted
from covey.training.frozen import stored_tensors, train_only

TRAINED = 4  # times the parameters: the model, its gradients, the row it started from and the reply
MODEL_SHAPES = (
    "input_shape",
    "outputs",
    "shape",
)  # what the program fills in; all else are the user's settings


def build(
    name: str,
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    seed: int = 0,
    train: Sequence[str] = (),
    weights: str = "",
    adapter: Any = None,
    **settings: Any,
) -> nn.Module:
    """Build the model `name` for one sample of `input_shape` (channels first) and `outputs` logits.

    The first weights depend on `seed` only, never on what was drawn before. An autoencoder gives
    back its input's shape and does not use `outputs`. Your own model may be a function or a class, with
    `input_shape` and `outputs` or without, or a ready module. `train` names what trains of it, by patterns of parameter
    names or by modules; all else is frozen. `weights` is a safetensors file with what the network begins with. An
    `adapter` freezes the network and adds a few numbers that train, beside what `train` names.
    """
    model = _built(name, input_shape, outputs, seed, settings)
    if weights:
        begin_with(model, weights)
    if adapter is not None:
        return adapted(model, adapter, seed, train)
    if train:
        train_only(model, train)
    return model


def begin_with(model: nn.Module, path: str) -> None:
    """Loads the tensors of a safetensors file that have the name and shape of the model's; others keep their start."""
    stored = stored_tensors(path, "model.weights")
    there = model.state_dict()
    fits = {
        name: tensor for name, tensor in stored.items() if name in there and there[name].shape == tensor.shape
    }
    if not fits:
        raise UserError(
            f"model.weights is {path!r}, of which no tensor has the name and shape of one of the model's"
        )
    model.load_state_dict(fits, strict=False)


def _built(
    name: str, input_shape: tuple[int, ...], outputs: int, seed: int, settings: Mapping[str, Any]
) -> nn.Module:
    builder: Any = MODELS.find(name)
    shape = tuple(int(size) for size in input_shape)
    if not shape or min(shape) < 1:
        raise UserError(f"input_shape is {input_shape}; allowed: sizes of at least 1")
    if outputs < 1:
        raise UserError(f"outputs is {outputs}; allowed: a whole number, at least 1")
    if isinstance(builder, nn.Module):
        return copy.deepcopy(builder)
    accepted = inspect.signature(builder).parameters
    unknown = [key for key in settings if key not in accepted or key in MODEL_SHAPES]
    if unknown:
        known = ", ".join(key for key in accepted if key not in MODEL_SHAPES) or "none"
        raise UserError(f"model {name!r} has no setting {unknown[0]!r} (its settings: {known})")
    wanted = {"input_shape": shape, "shape": shape, "outputs": outputs}
    given = {key: value for key, value in wanted.items() if key in accepted}
    make = partial(builder, **given, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = within_memory(name, make) if name in MODELS.builtin else make()
    if not isinstance(model, nn.Module):
        raise UserError(f"model {name!r} gave a {type(model).__name__}; it must give a torch.nn.Module")
    return model


def within_memory(name: str, make: Callable[[], nn.Module]) -> nn.Module:
    """The model, or a refusal before this machine's memory is full; its parameters are then counted without them."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with _Bounded(there // (TRAINED * 4)):
            return make()
    except MemoryError:
        with torch.device("meta"):
            parameters = sum(part.numel() for part in make().parameters())
    needed = TRAINED * 4 * parameters
    raise UserError(
        f"model {name!r} would have {parameters:,} parameters, which need {needed / 1e9:,.0f} GB to train; this "
        f"machine has {there / 1e9:,.0f} GB of memory"
    )


class _Bounded(TorchFunctionMode):
    """Bounds the values that are made. Every model is built under it; to count each without memory takes a second of
    imports."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.left = values

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.empty:
            shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            self.left -= math.prod(shape)
            if self.left < 0:
                raise MemoryError
        return func(*args, **(kwargs or {}))


__all__ = ["MODELS", "build"]
