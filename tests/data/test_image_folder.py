"""Image files of one's own: folders are classes, and above them clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from covey.data.image_folder import read_images
from covey.errors import UserError
from covey.runs.config import resolve


def write(folder: Path, count: int, colour: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(np.full((10, 12, 3), colour, np.uint8)).save(folder / f"{number}.png")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for client in ("home", "office"):
        write(tmp_path / client / "cat", 5, 50)
        write(tmp_path / client / "dog", 5, 200)
    return tmp_path


def test_folders_are_classes(pictures: Path) -> None:
    data = read_images(pictures / "home", side=8, grey=True, scaling="unit")
    assert data.classes == ("cat", "dog")
    assert tuple(data.x.shape) == (10, 1, 8, 8)
    assert [int(data.x[data.y == label].unique()) for label in (0, 1)] == [50, 200]
    assert (len(data.train), len(data.test)) == (8, 2)


def test_folders_above_them_are_clients(pictures: Path) -> None:
    data = read_images(pictures, clients=True, side=8)
    assert data.group_names == {"client": ("home", "office")}
    assert np.bincount(data.natural["client"][data.test]).tolist() == [2, 2]
    tables = {"data": {"name": "images", "path": str(pictures), "by_client": True}}
    config = resolve(tables)
    assert (config["partition"]["name"], config["data"]["clients"]) == ("natural", 2)


def test_another_folder_can_be_the_test_set(pictures: Path) -> None:
    data = read_images(pictures / "home", test=pictures / "office", side=8)
    assert (data.train.tolist(), data.test.tolist()) == (list(range(10)), list(range(10, 20)))


def test_mistakes_are_one_sentence(pictures: Path) -> None:
    with pytest.raises(UserError, match="is not a folder of images"):
        read_images(pictures / "nowhere")
    with pytest.raises(UserError, match="0 images in CLASS/ folders"):
        read_images(pictures)
    (pictures / "home" / "cat" / "0.png").write_text("no picture")
    with pytest.raises(UserError, match=r"0.png is not a readable image"):
        read_images(pictures / "home")
