"""PACS from all.npz or from a folder of images for each domain and class."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.convert import stratified_split
from covey.data.files import read_npz
from covey.data.loaders.images import Scaling, as_images, check_labels, scale_for
from covey.data.sources import SOURCES
from covey.data.types import Dataset, Indices
from covey.errors import UserError, importing, user_error
from covey.settings.ranges import Range
from covey.settings.registry import register

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
ENDINGS = frozenset({".jpg", ".jpeg", ".png"})
SOURCE = SOURCES["pacs"]


@register("data set", "pacs")
def pacs(
    *, folder: Path | None = None, scaling: Scaling = "standard", side: Annotated[int, Range(8, 512)] = 64
) -> Dataset:
    """PACS: photos, art paintings, cartoons and sketches of 7 classes; the natural grouping is "domain".

    From all.npz (x, y, classes, domain), averaged down to `side` pixels where they are larger, or from image files in
    domain/class/ folders, resized to `side` pixels (needs Pillow). There is no official split: 20 % of every domain
    and class are the test set, with a fixed seed.

    Args:
        side: pixels of the images' sides.
    """
    place = SOURCE.place(folder)
    if (place / "all.npz").is_file():
        stored = read_npz(place / "all.npz", ["x", "y", "classes", "domain"])
        x, y, domain = stored["x"], stored["y"], stored["domain"].astype(np.int64)
        classes = tuple(str(name) for name in stored["classes"])
        if domain.shape != (len(x),):
            raise UserError(
                f"{place / 'all.npz'}: {len(x)} images need as many domains, not shape {domain.shape}"
            )
    else:
        x, y, domain, classes = _read_folders(place, side)
    images, labels = smaller(as_images(x, place), side), check_labels(y, len(x), len(classes), place)
    strata = domain * len(classes) + labels.numpy()
    train, test = stratified_split(strata, test_fraction=0.2, rng=np.random.default_rng(0))
    return Dataset(
        name="pacs",
        x=images,
        y=labels,
        train=train,
        test=test,
        classes=classes,
        scale=scale_for(scaling, images, train),
        natural={"domain": domain},
    )


def smaller(images: Tensor, side: int) -> Tensor:
    """The images averaged down to `side` pixels; those that are no larger stay as they are."""
    if images.shape[-1] <= side:
        return images
    small = torch.empty(*images.shape[:2], side, side, dtype=torch.uint8)
    for first in range(0, len(images), 1000):  # floats of all of them would be large
        part = slice(first, first + 1000)
        small[part] = torch.nn.functional.adaptive_avg_pool2d(images[part].float(), side).round()
    return small


def _read_folders(folder: Path, side: int) -> tuple[NDArray[np.uint8], Indices, Indices, tuple[str, ...]]:
    """Images (side x side, antialiased bilinear), labels, domains and class names from domain/class/ folders."""
    missing = [name for name in DOMAINS if not (folder / name).is_dir()]
    if missing:
        raise SOURCE.lacks(folder, ["all.npz"] if len(missing) == len(DOMAINS) else missing)
    with importing("PACS from image files needs Pillow: install it, or use all.npz"):
        from PIL import Image
    classes = tuple(
        sorted({path.name for name in DOMAINS for path in (folder / name).iterdir() if path.is_dir()})
    )
    images, labels, domains = [], [], []
    for domain, name in enumerate(DOMAINS):
        for label, kind in enumerate(classes):
            for path in sorted((folder / name / kind).glob("*")):
                if path.suffix.lower() not in ENDINGS:
                    continue
                with user_error(f"{path} is not a readable image"), Image.open(path) as picture:
                    small = picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
                images.append(np.asarray(small))
                labels.append(label)
                domains.append(domain)
    if not images:
        raise SOURCE.lacks(folder, ["images (.jpg, .png) in domain/class/ folders"])
    return np.stack(images), np.array(labels), np.array(domains), classes
