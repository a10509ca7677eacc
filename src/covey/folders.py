"""Where a user's files lie on this machine: data sets, and what can be made again."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import platformdirs


def data_folder() -> Path:
    """Where the data sets' folders lie: COVEY_DATA or, without that, covey/data among the user's data."""
    root = os.environ.get("COVEY_DATA")
    return Path(root) if root else platformdirs.user_data_path("covey") / "data"


def cache_folder() -> Path:
    """Where unpacked arrays and compiled trainers are kept: covey among the user's caches."""
    return platformdirs.user_cache_path("covey")


def new_run_folder(name: str) -> Path:
    """runs/NAME-TIME, not yet there."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"{name}-{stamp}"
    number = 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{stamp}-{number}"
    return folder
