"""Encoders for pictures as the clients see them: made, cut out of an autoencoder, saved, loaded, run.

Other samples, such as rows of tables, are their own codes: nothing is trained, and the encoder has no weights. Texts
are told by which tokens are in them.
"""

import json
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import embedding_bag

from covey.data.types import Scale, unscaled
from covey.errors import UserError, user_error
from covey.files import write_atomically
from covey.settings.registry import register
from covey.streams import stream
from covey.training.models import build
from covey.training.models.sequences import PAD
from covey.training.objective import Objective, Reconstruction
from covey.training.rows import Layout, ModelMaker, made_as

ENCODE_BATCH = 1000  # samples encoded together; fixed, so that codes do not depend on who asks
FORMAT = "covey-encoder-1"
TOKENS = 4096  # told apart by their vectors; in larger vocabularies, which begin with what is frequent, some share one


class Pixels(nn.Module):
    """Undoes the standardisation of a data set, so that an autoencoder always sees values in [0, 1]."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        # not `unscaled`, which asks for the number of dimensions: torch.fx could not read it, nor lanes train it
        mean, std = (x.new_tensor(values).view(-1, 1, 1) for values in self.scale)
        return x * std + mean


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether there is something to encode; a row of a table, or a series, is its own code."""
    return len(shape) == 3


def as_numbers(x: Tensor) -> Tensor:
    """Samples as numbers that can be compared and averaged: of tokens, which are names, projections of their counts.

    A text of n places becomes n numbers, sum over its tokens of a random vector for each / sqrt(tokens); padding
    does not count.
    """
    if x.dtype != torch.int64:
        return x
    there = (x != PAD).float()
    sums = embedding_bag(x % TOKENS, token_vectors(x.shape[1]), mode="sum", per_sample_weights=there)
    return sums / there.sum(1, keepdim=True).clamp(min=1).sqrt()


@lru_cache(maxsize=4)  # every client asks for the same
def token_vectors(size: int) -> Tensor:
    """Public and the same everywhere: no seed of a run, nothing to agree on."""
    return torch.from_numpy(stream(0, "tokens", size).standard_normal((TOKENS, size), np.float32))


def suited(shape: tuple[int, ...]) -> str:
    """The paper's choice: the convolutional autoencoder for colour pictures, the fully connected one otherwise."""
    colour = len(shape) == 3 and shape[0] > 1 and shape[1] % 8 == 0 and shape[2] % 8 == 0
    return "ae-conv" if colour else "ae-fc"


@dataclass(frozen=True)
class Pictures(Reconstruction):
    """Mean squared error against the picture in [0, 1], whatever standardisation the data set has."""

    scale: Scale | None = None

    def target(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return x if self.scale is None else unscaled(x, self.scale)


def autoencoder(
    name: str, shape: tuple[int, ...], scale: Scale | None = None, seed: int = 0
) -> nn.Sequential:
    """`pixels` (when the data are standardised), `encoder`, `decoder`; `name` may be "auto"."""
    model = build(suited(shape) if name == "auto" else name, input_shape=shape, outputs=1, seed=seed)
    parts = OrderedDict(model.named_children())
    if "encoder" not in parts:
        raise UserError(f"autoencoder {name!r} has no encoder; allowed: auto, ae-fc, ae-conv")
    if scale is not None:
        parts = OrderedDict(pixels=Pixels(scale), **parts)
    whole = nn.Sequential(parts)
    settings = {"mean": scale.mean, "std": scale.std} if scale is not None else {}
    name = suited(shape) if name == "auto" else name
    return made_as(whole, ModelMaker(name="autoencoder", settings={"network": name, **settings}))


@register("model of a method", "autoencoder")
def autoencoder_and_goal(
    shape: tuple[int, ...],
    seed: int,
    *,
    network: str,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> tuple[nn.Module, Objective]:
    """An autoencoder made again where its settings have come to, and what it is trained for."""
    scale = Scale(mean, std) if mean else None
    return autoencoder(network, shape, scale, seed), Pictures(scale)


def encoder(model: nn.Sequential) -> nn.Sequential:
    """The autoencoder without its decoder (weights shared, not copied)."""
    return nn.Sequential(
        OrderedDict((name, part) for name, part in model.named_children() if name != "decoder")
    )


@lru_cache(maxsize=64)
def _skeleton(
    name: str,
    shape: tuple[int, ...],
    scale: Scale | None,
    thread: int,  # noqa: ARG001
) -> tuple[nn.Module, Layout]:
    """An encoder to be called with somebody else's weights: one per thread, because a call swaps them in."""
    model = encoder(autoencoder(name, shape, scale)).eval()
    return model, Layout.of(model)


def encoded_rows(row: Tensor, x: Tensor, name: str, scale: Scale | None) -> Tensor:
    """The flat codes of `x` under the encoder whose weights are `row`, [samples, d]."""
    if not is_picture(tuple(x.shape[1:])) and not row.numel():
        return as_numbers(x).flatten(1)
    model, layout = _skeleton(name, tuple(x.shape[1:]), scale, threading.get_ident())
    if row.numel() != layout.size:
        raise UserError(
            f"the encoder has {row.numel()} values; {name!r} on inputs of shape {tuple(x.shape[1:])} has {layout.size}"
        )
    weights = layout.tensors(row)
    with torch.no_grad():
        parts = [functional_call(model, weights, (part,)).flatten(1) for part in torch.split(x, ENCODE_BATCH)]
    return torch.cat(parts)


@lru_cache(maxsize=64)
def code_length(name: str, shape: tuple[int, ...], scale: Scale | None) -> int:
    """How many values the code of a sample of that shape has."""
    if not is_picture(shape):
        return math.prod(shape)
    model = encoder(autoencoder(name, shape, scale)).eval()
    with torch.no_grad():
        return int(model(torch.zeros(1, *shape)).numel())


def save_encoder(path: Path, row: Tensor, *, name: str, shape: tuple[int, ...]) -> None:
    """One safetensors file that says what it is, to be shared or used again."""
    header = {"format": FORMAT, "model": name, "shape": json.dumps(list(shape))}
    with user_error(f"encoder {str(path)!r} cannot be written"):
        write_atomically(path, safetensors.torch.save({"row": row.contiguous()}, header))


def load_encoder(path: Path) -> tuple[Tensor, str, tuple[int, ...]]:
    """The weights, the autoencoder's name and the input shape of a saved encoder."""
    with user_error(f"encoder {str(path)!r} cannot be read"), safetensors.safe_open(path, "pt") as file:
        header = file.metadata() or {}
        if header.get("format") != FORMAT:
            raise UserError(f"encoder {str(path)!r} is not an encoder that covey saved")
        shape = tuple(int(size) for size in json.loads(header["shape"]))
        return file.get_tensor("row"), header["model"], shape
