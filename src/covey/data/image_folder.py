"""A data set from folders of images: one folder per class, and above it, if wanted, one per client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from covey.data.convert import stratified_split
from covey.data.loaders.images import Scaling, scale_for
from covey.data.types import Dataset
from covey.data.usual import Usual, declare
from covey.errors import UserError, user_error
from covey.settings.ranges import Part, Range
from covey.settings.registry import register
from covey.settings.signatures import takes, validated

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


SidePixels = Annotated[int, Range(4, 1024)]  # of a side


@validated
def read_images(
    folder: str | Path,
    *,
    clients: bool = False,
    side: SidePixels = 64,
    grey: bool = False,
    test: str | Path | None = None,
    test_share: Part = 0.2,
    scaling: Scaling = "standard",
    name: str = "",
    seed: int = 0,
) -> Dataset:
    """A data set from image files in FOLDER/CLASS/, or with `clients` in FOLDER/CLIENT/CLASS/; needs Pillow.

    Args:
        folder: with a folder per class.
        clients: whether there is a folder per client above those.
        side: all images become `side` x `side` pixels.
        grey: one channel in place of three.
        test: another folder of the same form.
        test_share: without one, this share of the images, by client and class.
        scaling: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by the training images' means and standard
            deviations.
        name: of the data set.
        seed: of the test images.

    Returns:
        The data set.

    Raises:
        UserError: where there is no such folder, or a file is no image.

    Examples:
        >>> own = covey.read_images("photos", side=32)  # doctest: +SKIP
    """
    places = [Path(folder)] if test is None else [Path(folder), Path(test)]
    found = [_files(place, clients) for place in places]
    classes = sorted({label for files in found for _, label, _ in files})
    owners = sorted({owner for files in found for owner, _, _ in files})
    images = [pixels_of(path, side, grey) for files in found for _, _, path in files]
    y = np.array([classes.index(label) for files in found for _, label, _ in files])
    ids = np.array([owners.index(owner) for files in found for owner, _, _ in files])
    if test is None:
        train, held = stratified_split(
            ids * len(classes) + y, test_fraction=test_share, rng=np.random.default_rng(seed)
        )
    else:
        train, held = np.arange(len(found[0])), np.arange(len(found[0]), len(y))
    x = torch.from_numpy(np.stack(images))
    return Dataset(
        name=name or Path(folder).name,
        x=x,
        y=torch.from_numpy(y),
        train=train,
        test=held,
        classes=tuple(classes),
        scale=scale_for(scaling, x, train),
        natural={"client": ids} if clients else {},
        group_names={"client": tuple(owners)} if clients else {},
        clients_by="client" if clients else "",
        resized=True,
    )


@register("data set", "images")
@takes(read_images, without=("folder", "clients", "name", "seed"))
def images(*, path: Path, by_client: bool = False, test: Path | None = None, **settings: Any) -> Dataset:
    """Image files of your own: in PATH/CLASS/, or in PATH/CLIENT/CLASS/.

    Args:
        path: the folder.
        by_client: whether its folders are clients, with the classes' folders inside.
        test: another folder, of test images.
    """
    return read_images(path, clients=by_client, test=test, **settings)


def _usual(*, path: Path, by_client: bool = False, **_: Any) -> Usual:
    """With folders of clients, each is one."""
    if not by_client:
        return Usual()
    return Usual(partition="natural", clients=len({owner for owner, _, _ in _files(Path(path), True)}))


def _data_files(*, path: Path, by_client: bool = False, test: Path | None = None, **_: Any) -> list[Path]:
    """What the run folder keeps the hash of."""
    folders = [Path(path), *([Path(test)] if test is not None else [])]
    return [file for folder in folders for _, _, file in _files(folder, by_client)]


declare(images, usual=_usual, files=_data_files)


def _files(folder: Path, clients: bool) -> Sequence[tuple[str, str, Path]]:
    """Client, class and path of every image, in the order of the names."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of images")
    found = []
    for owner in sorted(path for path in folder.iterdir() if path.is_dir()) if clients else [folder]:
        for label in sorted(path for path in owner.iterdir() if path.is_dir()):
            names = sorted(path for path in label.iterdir() if path.suffix.lower() in ENDINGS)
            found += [(owner.name, label.name, path) for path in names]
    if len(found) < 2:
        form = "CLIENT/CLASS/" if clients else "CLASS/"
        raise UserError(f"{folder} holds {len(found)} images in {form} folders; there must be at least 2")
    return found


def pixels_of(path: Path, side: int, grey: bool) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An image as channels x side x side bytes (antialiased bilinear)."""
    with open_picture(path) as picture:
        return as_bytes(picture, (side, side), grey)


@contextmanager
def open_picture(picture: Any) -> Iterator[Any]:
    """A picture of Pillow, from a file or as it is."""
    if not isinstance(picture, Path):
        yield picture
        return
    from PIL import Image

    with user_error(f"{picture} is not a readable image"), Image.open(picture) as opened:
        yield opened


def as_bytes(picture: Any, size: tuple[int, int], grey: bool) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Channels x height x width of a picture, brought to a size (width, height)."""
    from PIL import Image

    small = picture.convert("L" if grey else "RGB").resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(small)
    return np.ascontiguousarray(pixels[None] if grey else pixels.transpose(2, 0, 1))
