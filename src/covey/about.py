"""`about.json`: what the readers of a run folder need to know of it without anybody's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.checksums import ABOUT
from covey.errors import UserError
from covey.metrics import Metrics
from covey.reading import read_json

if TYPE_CHECKING:
    from covey.data.types import Dataset, Federation


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a sample looks like before it goes into a model: `scale` is (mean, standard deviation) per channel."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset) -> Inputs:
        return cls(
            shape=tuple(dataset.x.shape[1:]),
            dtype=str(dataset.x.dtype).removeprefix("torch."),
            scale=(dataset.scale.mean, dataset.scale.std) if dataset.scale else None,
            features=dataset.features,
        )


@dataclass(frozen=True, kw_only=True)
class About:
    """The metrics with their directions, names of classes and clients, and the inputs."""

    metrics: Metrics = field(default_factory=Metrics)
    dataset: str = ""
    classes: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    inputs: Inputs = field(default_factory=Inputs)

    @classmethod
    def of(cls, metrics: Metrics, data: Federation | None) -> About:
        if data is None:
            return cls(metrics=metrics)
        return cls(
            metrics=metrics,
            dataset=data.dataset.name,
            classes=data.dataset.classes,
            clients=data.names(),
            inputs=Inputs.of(data.dataset),
        )

    def json(self) -> str:
        """The file."""
        plain = {
            "schema": 1,
            "metrics": self.metrics.plain(),
            "dataset": self.dataset,
            "classes": list(self.classes),
            "clients": list(self.clients),
            "inputs": asdict(self.inputs),
        }
        return json.dumps(plain, indent=1)


def read_about(folder: Path) -> About:
    """What the folder says of itself; a folder without the file says nothing."""
    try:
        plain = read_json(folder / ABOUT)
        return About(
            metrics=Metrics.from_plain(plain["metrics"]),
            dataset=str(plain["dataset"]),
            classes=tuple(map(str, plain["classes"])),
            clients=tuple(map(str, plain["clients"])),
            inputs=_inputs(plain["inputs"]),
        )
    except FileNotFoundError:
        return About()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{folder / ABOUT} is damaged: it cannot be read.") from error


def _inputs(plain: Mapping[str, Any]) -> Inputs:
    mean, std = plain["scale"] or ((), ())
    return Inputs(
        shape=tuple(plain["shape"]),
        dtype=plain["dtype"],
        scale=(tuple(mean), tuple(std)) if plain["scale"] else None,
        features=tuple(plain["features"]),
    )
