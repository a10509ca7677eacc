"""Data sets, how they are shared out among clients, and how clients' data are shifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from covey.data.federate import check_settings, federate, pick
from covey.data.loaders import DATASETS
from covey.data.partitions import PARTITIONS
from covey.data.types import Dataset, Federation, Samples, Scale, Share, Shift


def load(name: str, *, folder: Path | None = None, **settings: Any) -> Dataset:
    """Load a data set by its name; `folder` says where its files are, the settings are the loader's."""
    loader = pick("dataset", name, DATASETS)
    check_settings("dataset", name, loader, settings)
    dataset: Dataset = loader(folder=folder, **settings)
    return dataset


__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "Federation",
    "Samples",
    "Scale",
    "Share",
    "Shift",
    "federate",
    "load",
]
