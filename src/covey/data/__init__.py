"""Data sets, how they are shared out among clients, and how clients' data are shifted."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.data.federate import federate
from covey.data.types import Dataset, Federation, Samples, Scale, Share, Shift
from covey.data.usual import Usual, declare
from covey.errors import UserError
from covey.settings.catalogue import DATASETS, PARTITIONS, SHIFTS
from covey.settings.signatures import checked, settings_of

if TYPE_CHECKING:
    from covey.data.clients import from_clients
    from covey.data.convert import from_huggingface, from_tensors, from_torch
    from covey.data.image_folder import read_images
    from covey.data.split_files import read_leaf, read_split
    from covey.data.table import read_table

# What reads a user's own data, imported when it is first used: tables need Arrow, pictures Pillow.
_HOMES = {
    "from_clients": "covey.data.clients",
    "from_huggingface": "covey.data.convert",
    "from_tensors": "covey.data.convert",
    "from_torch": "covey.data.convert",
    "read_images": "covey.data.image_folder",
    "read_leaf": "covey.data.split_files",
    "read_split": "covey.data.split_files",
    "read_table": "covey.data.table",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'covey.data' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


LOADER_GIVEN = ("folder",)  # what `load` fills in; all else are the user's settings


def load(name: str, *, folder: Path | None = None, **settings: Any) -> Dataset:
    """Load a data set by its name; `folder` says where its files are, the settings are the loader's own."""
    loader = DATASETS.find(name)
    settings = checked("data", settings_of(loader, given=LOADER_GIVEN), settings)
    if "folder" in inspect.signature(loader).parameters:
        settings["folder"] = folder
    dataset = loader(**settings)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"data set {name!r} gave a {type(dataset).__name__}; it must give a Dataset (see covey.from_tensors)"
        )
    return dataset


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
    "Usual",
    "declare",
    "federate",
    "from_clients",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "read_images",
    "read_leaf",
    "read_split",
    "read_table",
]
