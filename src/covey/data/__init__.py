"""Data sets, how they are shared out among clients, and how clients' data are shifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from covey.data.convert import from_huggingface, from_tensors, from_torch
from covey.data.federate import GIVEN, federate, pick
from covey.data.loaders import DATASETS
from covey.data.partitions import PARTITIONS
from covey.data.shifts import SHIFTS
from covey.data.types import Dataset, Federation, Samples, Scale, Share, Shift
from covey.settings import checked, settings_of


def load(name: str, *, folder: Path | None = None, **settings: Any) -> Dataset:
    """Load a data set by its name; `folder` says where its files are, the settings are the loader's own."""
    loader = pick("dataset", name, DATASETS)
    return loader(folder=folder, **checked("data", settings_of(loader, given=GIVEN), settings))


__all__ = [
    "DATASETS",
    "PARTITIONS",
    "SHIFTS",
    "Dataset",
    "Federation",
    "Samples",
    "Scale",
    "Share",
    "Shift",
    "federate",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
]
