"""Data of one's own: tensors, torch data sets, Hugging Face data sets."""

from __future__ import annotations

import numpy as np

from covey.data.local_tests import hold_out
from covey.data.types import Indices


def stratified_split(
    strata: Indices, *, test_fraction: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Training and test positions, both ascending; every stratum gives its share of test samples, rounded."""
    (train,), (test,) = hold_out([np.arange(len(strata))], strata, test_fraction, rng)
    return np.sort(train), np.sort(test)
