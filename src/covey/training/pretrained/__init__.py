"""Frozen encoders by name: a picture goes in once, its features are what any method trains on."""

import os
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.catalogue import ENCODERS
from covey.settings.choices import OneOrNone
from covey.settings.own_code import bare_name
from covey.settings.registry import as_told
from covey.training.frozen import Frozen

ENCODER = OneOrNone(ENCODERS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """A frozen network, with the form in which it takes pictures.

    network: takes (N, C, side, side) and gives (N, features). side: to which pictures are resized; none: as they are.
    channels: to which grey pictures are repeated. mean, std: by which pixels of 0 to 1 are standardised, one number
    or one for each channel. mark: of a network whose numbers are in a file of its own, that file's SHA-256.
    """

    network: nn.Module
    side: int | None = None
    channels: int | None = None
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    mark: str = ""

    @cached_property
    def frozen(self) -> Frozen:
        """The numbers of the network."""
        return Frozen.of(self.network.requires_grad_(False))

    @cached_property
    def digest(self) -> str:
        """Equal for the same numbers and the same treatment of pictures."""
        treated = f"{self.side}-{self.channels}-{plain(self.mean)}-{plain(self.std)}"
        return f"{(self.mark or self.frozen.digest)[:32]}-{treated}"

    def __call__(self, x: Tensor) -> Tensor:
        """The features of pictures with pixels of 0 to 1, one after another, so that none depend on the others."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self.network(self.prepared(one[None])).flatten(1) for one in x])

    def prepared(self, x: Tensor) -> Tensor:
        """Pictures as the network takes them."""
        if x.dim() != 4:
            raise UserError(
                f"data.encoder is for pictures; samples have shape {tuple(x.shape[1:])}, and allowed are 3 dimensions"
            )
        if self.channels is not None and x.shape[1] != self.channels:
            x = x[:, :1].expand(-1, self.channels, -1, -1)
        if self.side is not None and x.shape[-2:] != (self.side, self.side):
            x = nn.functional.interpolate(x, (self.side, self.side), mode="bilinear", antialias=False)
        return (x - by_channel(self.mean)) / by_channel(self.std)


def by_channel(numbers: float | tuple[float, ...]) -> float | Tensor:
    """One number for all pixels, or one for those of each channel."""
    return torch.tensor(numbers).view(1, -1, 1, 1) if isinstance(numbers, tuple) else numbers


def plain(numbers: float | tuple[float, ...]) -> str:
    """The numbers as they stand in a file's name."""
    return "_".join(map(str, numbers)) if isinstance(numbers, tuple) else str(numbers)


BARE: ContextVar[bool] = ContextVar("BARE", default=False)  # whether networks are made without their weights


def encoder_of(setting: Any, *, bare: bool = False) -> Encoder:
    """The encoder that a setting names; your own may be a function that gives one, or an `nn.Module`.

    A `bare` one has the network, and any numbers: a site that is sent the weights needs no file with them.
    """
    token = BARE.set(bare)
    try:
        made = ENCODER.made("data.encoder", setting)()
    finally:
        BARE.reset(token)
    if isinstance(made, nn.Module):
        made = Encoder(network=made)
    if not isinstance(made, Encoder):
        raise UserError(
            f"data.encoder gave a {type(made).__name__}; it must give an Encoder or a torch.nn.Module"
        )
    align(made.network)
    return replace(made)


def align(network: nn.Module) -> None:
    """Numbers as a file has them may lie at odd places in memory, where a product's last bit is another one."""
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = tensor.data.clone()


def encoder_as_sent(setting: Any) -> Any:
    """The setting as a site is told it: names of what it has installed, and no path of this machine."""
    name, own = (setting, {}) if isinstance(setting, str) else (setting["name"], dict(setting))
    own.pop("name", None)
    return {"name": bare_name(name), **as_told(ENCODERS.find(name), own)}


def weights_folder() -> Path:
    """Where features and converted weights are kept: COVEY_CACHE, or ~/.cache/covey."""
    return Path(os.environ.get("COVEY_CACHE") or Path.home() / ".cache" / "covey")


__all__ = ["BARE", "ENCODER", "Encoder", "align", "encoder_as_sent", "encoder_of", "weights_folder"]
