"""`about.json`: what the readers of a run folder need to know about it without the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.data.schema import Schema
from covey.errors import UserError
from covey.files import read_json, strict_json
from covey.folder.checksums import ABOUT
from covey.folder.plain import of_plain
from covey.training.metrics import Metrics

if TYPE_CHECKING:
    from torch import Tensor

    from covey.data.types import Dataset, Federation


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a sample looks like before it goes into a model, and how it gets there.

    shape, dtype: as the data set holds it.
    scale: (mean, standard deviation) per channel.
    features: the names of a table's inputs.
    schema: how these are made of the table's columns; older folders do not have it.
    resized: whether pictures of any size were brought to this one.
    low, high: the smallest and the largest value in training.
    reach: what the largest value of every training sample is at least.
    encoder: what samples go through before the model: its setting, its digest, and the shape of its features.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    features: tuple[str, ...] = ()
    schema: Schema | None = None
    resized: bool = False
    low: float | None = None
    high: float | None = None
    reach: float | None = None
    encoder: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Inputs:
        from covey.data.samples import reach_of

        if (origin := dataset.encoded_from) is not None:
            shape = list(dataset.x.shape[1:])
            encoder = {"setting": origin.setting, "digest": origin.digest, "shape": shape}
            return replace(cls.of(origin.dataset), scale=None, encoder=encoder)
        low, high, reach = reach_of(dataset.x, dataset.train)
        return cls(
            shape=tuple(dataset.x.shape[1:]),
            dtype=str(dataset.x.dtype).removeprefix("torch."),
            scale=(dataset.scale.mean, dataset.scale.std) if dataset.scale else None,
            features=dataset.features,
            schema=dataset.schema,
            resized=dataset.resized,
            low=low,
            high=high,
            reach=reach,
        )

    def samples(self, x: Any) -> Tensor:
        """What people have (rows, arrays, pictures, a folder) as the model takes it; see `covey.data.samples`."""
        from covey.data.samples import samples_of

        samples = samples_of(self, x)
        if self.encoder is None:
            return samples
        from covey.training.pretrained.features import features_of

        return features_of(samples, self.encoder["setting"], self.encoder["digest"])

    @property
    def model_shape(self) -> tuple[int, ...]:
        """What the model takes: a sample's shape, or that of its features."""
        return self.shape if self.encoder is None else tuple(self.encoder["shape"])

    def plain(self) -> dict[str, Any]:
        """As plain values, for a file."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "schema": self.schema.plain() if self.schema else None}


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
        made = {"metrics": self.metrics.plain(), "inputs": self.inputs.plain()}
        return strict_json({"schema": 1, **vars(self), **made}, indent=1)


def read_about(folder: Path) -> About:
    """What the folder says about itself; empty where it has no such file."""
    try:
        about: About = of_plain(About, read_json(folder / ABOUT))
        return about
    except FileNotFoundError:
        return About()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{folder / ABOUT} is damaged: it cannot be read.") from error
