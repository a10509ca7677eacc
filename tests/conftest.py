"""What every test shares: where the image files are, and one torch thread."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest_plugins = ["tests.made_up_rounds"]

torch.set_num_threads(1)
# no test's outcome depends on how busy the machine is
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture
def data_folder() -> Path:
    """The folder with the image data; the test is skipped where there is none."""
    folder = Path(os.environ.get("COVEY_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no image data at {folder}")
    return folder
