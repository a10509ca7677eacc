"""Two tables of patients that come with scikit-learn, cut by what hospitals differ in: size of tumours, age and sex."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.arrays import Array
from covey.data.convert import stratified_split
from covey.data.types import Dataset, Scale
from covey.data.usual import Usual, declare
from covey.settings.ranges import Count
from covey.settings.registry import register

TEST_SHARE = 0.2
DECADES = (30, 40, 50, 60)  # the ages that divide the patients of `diabetes`


def scale_of(x: Array) -> Scale:
    """Mean and deviation of each column."""
    return Scale(tuple(x.mean(axis=0).tolist()), tuple(x.std(axis=0).tolist()))


def band_of(values: Array, bands: int) -> NDArray[np.int64]:
    """Which of `count` equally large parts each value falls into, from the smallest on."""
    edges = np.quantile(values, np.arange(1, bands) / bands)
    return np.searchsorted(edges, values, side="right").astype(np.int64)


@register("data set", "breast-cancer")
def breast_cancer(
    *,
    folder: Path | None = None,  # noqa: ARG001  (every loader takes a folder)
    bands: Count = 10,
) -> Dataset:
    """569 tumours, 30 measurements each, malignant or benign, from scikit-learn; clients see tumours of one size.

    The natural groups are bands of equally many tumours by their mean area, from the smallest on: small ones are mostly
    benign. 80 % training, 20 % test in each band, with a fixed seed.

    Args:
        bands: how many groups by size.
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    x, y = bunch.data, bunch.target.astype(np.int64)
    size = band_of(x[:, list(bunch.feature_names).index("mean area")], bands)
    train, test = stratified_split(2 * size + y, test_fraction=TEST_SHARE, rng=np.random.default_rng(0))
    return Dataset(
        name="breast-cancer",
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(y),
        train=train,
        test=test,
        classes=tuple(map(str, bunch.target_names)),
        scale=scale_of(x[train]),
        natural={"size": size},
        group_names={"size": tuple(f"size {band + 1} of {bands}" for band in range(bands))},
        clients_by="size",
        features=tuple(map(str, bunch.feature_names)),
    )


@register("data set", "diabetes")
def diabetes(
    *,
    folder: Path | None = None,  # noqa: ARG001  (every loader takes a folder)
) -> Dataset:
    """442 diabetes patients, 10 measurements each, and the progress of the illness after a year; from scikit-learn.

    The target is a number, in deviations from its mean over the training data (regression). The natural groups are the
    patients of one sex and one decade of age, ten in all. 80 % training, 20 % test in each, with a fixed seed.
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    x, y = bunch.data, bunch.target
    age, sex = np.searchsorted(DECADES, x[:, 0], side="right"), (x[:, 1] > x[:, 1].min()).astype(np.int64)
    group = (2 * age + sex).astype(np.int64)
    train, test = stratified_split(group, test_fraction=TEST_SHARE, rng=np.random.default_rng(0))
    target = (y - y[train].mean()) / y[train].std()
    edges = ["under 30", "30 to 39", "40 to 49", "50 to 59", "60 and over"]
    return Dataset(
        name="diabetes",
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(target.astype(np.float32)[:, None]),
        train=train,
        test=test,
        classes=(),
        scale=scale_of(x[train]),
        natural={"patients": group},
        group_names={"patients": tuple(f"{span}, sex {sex + 1}" for span in edges for sex in (0, 1))},
        clients_by="patients",
        features=tuple(map(str, bunch.feature_names)),
    )


def _by_size(*, bands: int = 10, **_: Any) -> Usual:
    """What a configuration means when it says nothing of clients."""
    return Usual(partition="natural", clients=bands)


declare(breast_cancer, usual=_by_size)
declare(diabetes, usual=Usual(partition="natural", clients=10, objective="regression"))
