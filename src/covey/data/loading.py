"""Load a data set by its name."""

import inspect
from pathlib import Path
from typing import Any

from covey.data.types import Dataset
from covey.errors import UserError
from covey.settings.catalogue import DATASETS
from covey.settings.signatures import checked, settings_of

LOADER_GIVEN = ("folder",)  # what `load` fills in; all else are the user's settings


def load(name: str, *, folder: Path | None = None, **settings: Any) -> Dataset:
    """Loads a data set by its name.

    Args:
        name: built in (see `covey datasets`), of an installed package, or your own.
        folder: where its files are; none: COVEY_DATA.
        settings: the loader's own.

    Returns:
        The data set.

    Raises:
        UserError: for a name or setting that is not known, and files that are not there.

    Examples:
        >>> digits = covey.load("digits")
        >>> len(digits.x), len(digits.classes)
        (1797, 10)
    """
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
