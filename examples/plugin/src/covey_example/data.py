"""The wine data that come with scikit-learn, as a covey data set."""

from __future__ import annotations

import torch
from sklearn.datasets import load_wine

from covey.data import Dataset, Scale, from_tensors


def wine(*, test_share: float = 0.25) -> Dataset:
    """178 wines of 3 growers by 13 measurements.

    Args:
        test_share: share of the wines that is the test set.
    """
    bunch = load_wine()
    x, y = torch.tensor(bunch.data, dtype=torch.float32), torch.tensor(bunch.target)
    scale = Scale(tuple(x.mean(0).tolist()), tuple(x.std(0).tolist()))
    names = [str(name) for name in bunch.target_names]
    return from_tensors(x, y, test_fraction=test_share, classes=names, scale=scale, name="wine")
