"""Frozen encoders by name: a picture goes in once, its features are what any method trains on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.catalogue import ENCODERS
from covey.settings.choices import OneOrNone
from covey.training.frozen import Frozen

ENCODER = OneOrNone(ENCODERS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """A network that nobody trains, with what it wants its pictures to be.

    network: takes (N, C, side, side) and gives (N, features). side: to which pictures are resized; none: as they are.
    channels: grey pictures are repeated to so many. mean, std: by which pixels of 0 to 1 are standardised.
    """

    network: nn.Module
    side: int | None = None
    channels: int | None = None
    mean: float = 0.0
    std: float = 1.0

    @cached_property
    def digest(self) -> str:
        """Equal for the same numbers and the same treatment of pictures."""
        for parameter in self.network.parameters():
            parameter.requires_grad_(False)
        treated = f"{self.side}-{self.channels}-{self.mean}-{self.std}"
        return f"{Frozen.of(self.network).digest[:32]}-{treated}"

    def __call__(self, x: Tensor) -> Tensor:
        """The features of pictures with pixels of 0 to 1, one after another: nobody's depend on who else is there."""
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
        return (x - self.mean) / self.std


def encoder_of(setting: Any) -> Encoder:
    """The encoder that a setting names; your own may be a function that gives one, or an `nn.Module`."""
    made = ENCODER.made("data.encoder", setting)()
    if isinstance(made, nn.Module):
        made = Encoder(network=made)
    if not isinstance(made, Encoder):
        raise UserError(
            f"data.encoder gave a {type(made).__name__}; it must give an Encoder or a torch.nn.Module"
        )
    return replace(made)


def cache_folder() -> Path:
    """Where features and converted weights are kept: COVEY_CACHE, or ~/.cache/covey."""
    return Path(os.environ.get("COVEY_CACHE") or Path.home() / ".cache" / "covey")


__all__ = ["ENCODER", "Encoder", "cache_folder", "encoder_of"]
