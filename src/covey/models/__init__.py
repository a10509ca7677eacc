"""The papers' networks by name: `build("lenet5", input_shape=(1, 28, 28), outputs=10)`; logits out."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from covey.errors import UserError
from covey.models import autoencoders, deep, pictures, plain

Builder = Callable[..., nn.Module]

MODELS: dict[str, Builder] = {
    "softmax": plain.softmax,
    "mlp": plain.mlp,
    "lenet5": pictures.lenet5,
    "lenet-tanh": pictures.lenet_tanh,
    "cnn-mnist": pictures.cnn_mnist,
    "cnn-mnist-small": pictures.cnn_mnist_small,
    "cnn-fashion": pictures.cnn_fashion,
    "cnn-cifar": pictures.cnn_cifar,
    "cnn-emnist": pictures.cnn_emnist,
    "cnn-femnist": pictures.cnn_femnist,
    "vgg11": deep.vgg11,
    "vgg19": deep.vgg19,
    "resnet18": deep.resnet18,
    "ae-fc": autoencoders.ae_fc,
    "ae-conv": autoencoders.ae_conv,
}


def settings_of(name: str) -> dict[str, inspect.Parameter]:
    """The settings that a model takes besides `input_shape` and `outputs`, with their defaults."""
    return {
        key: parameter
        for key, parameter in inspect.signature(find(name)).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def find(name: str) -> Builder:
    """The builder called `name`, or a `UserError` that suggests the nearest one."""
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name, MODELS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"model {name!r} is not known{hint} (models: {', '.join(MODELS)})")


def build(
    name: str, *, input_shape: tuple[int, ...], outputs: int, seed: int = 0, **settings: Any
) -> nn.Module:
    """Build the model `name` for one sample of `input_shape` (channels first) and `outputs` logits.

    The first weights depend on `seed` only, never on what was drawn before. An autoencoder gives
    back its input's shape and does not use `outputs`.
    """
    builder = find(name)
    shape = tuple(int(size) for size in input_shape)
    if not shape or min(shape) < 1:
        raise UserError(f"input_shape {input_shape} of model {name!r} must hold positive sizes")
    if outputs < 1:
        raise UserError(f"outputs {outputs} of model {name!r} must be at least 1")
    unknown = [key for key in settings if key not in settings_of(name)]
    if unknown:
        known = ", ".join(settings_of(name)) or "none"
        raise UserError(f"model {name!r} has no setting {unknown[0]!r} (its settings: {known})")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return builder(shape, outputs, **settings)


__all__ = ["MODELS", "build", "find", "settings_of"]
