"""Which files the image data sets are read from, and where people get them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from covey.errors import UserError
from covey.files import data_folder

ARRAYS = "train.npz and test.npz, each with x (uint8, N,H,W,C), y and classes (numpy.savez writes them)"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set.

    folder: its own among the data sets'. files: what must lie there, in words. origin: who made it, and where it is.
    """

    folder: str
    files: str
    origin: str

    def place(self, folder: Path | None = None) -> Path:
        """Where its files are looked for: the given folder, else its own among the data sets'."""
        return Path(folder) if folder is not None else data_folder() / self.folder

    def lacks(self, folder: Path, missing: list[str]) -> UserError:
        """The sentence for missing files: which, where they were looked for, where to get them."""
        return UserError(
            f"missing {', '.join(missing)} in {folder.absolute()}: get {self.origin}, as {self.files}, "
            "and put the files there, or set COVEY_DATA to the folder that holds the data sets' folders"
        )

    def need(self, folder: Path, wanted: list[str]) -> None:
        """Refuse with one sentence when files are missing."""
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            raise self.lacks(folder, missing)


# What must lie in the folder of a data set, in words, and who made it and where it is.
FILES_AND_ORIGIN: Final = {
    "mnist": (
        "the four official idx files, .gz or not; qmnist_writers.npz (writer_train, writer_test) for writers",
        "MNIST (LeCun, Cortes, Burges; https://storage.googleapis.com/cvdf-datasets/mnist/)",
    ),
    "fashion-mnist": (
        "the four official idx files, .gz or not",
        "Fashion-MNIST (Zalando Research; https://github.com/zalandoresearch/fashion-mnist)",
    ),
    "emnist": (
        "the four official idx files of a split (emnist-byclass-train-images-idx3-ubyte, ...), .gz or not",
        "EMNIST (Cohen et al. 2017; https://www.nist.gov/itl/products-and-services/emnist-dataset)",
    ),
    "cifar10": (
        ARRAYS,
        "CIFAR-10 (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html)",
    ),
    "cifar100": (
        f"{ARRAYS}, y_coarse and coarse_classes",
        "CIFAR-100 (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html)",
    ),
    "svhn": (
        ARRAYS,
        "SVHN, cropped digits (Netzer et al. 2011; http://ufldl.stanford.edu/housenumbers/)",
    ),
    "femnist": (
        "LEAF's train/*.json and test/*.json, or all.npz with x, y, writer and leaf_split",
        "FEMNIST of the LEAF benchmark (https://github.com/TalwalkarLab/leaf)",
    ),
    "pacs": (
        (
            "folders domain/class/ of images (photo, art_painting, cartoon, sketch), or all.npz (x, y, classes, domain)"
        ),
        "PACS (Li et al., ICCV 2017; https://domaingeneralization.github.io/)",
    ),
}

SOURCES: Final[dict[str, Source]] = {
    name: Source(folder=name.replace("-", "_"), files=files, origin=origin)
    for name, (files, origin) in FILES_AND_ORIGIN.items()
}
