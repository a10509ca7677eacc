"""Power-of-choice: of a few random candidates, those with the highest loss work."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def candidates(sizes: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Positions of `count` candidates drawn without replacement, by how much data they have."""
    usable = np.flatnonzero(sizes > 0)
    count = min(count, len(usable))
    return [int(i) for i in rng.choice(usable, size=count, replace=False, p=sizes[usable] / sizes.sum())]


def highest(losses: Array, count: int) -> list[int]:
    """Positions of the `count` highest losses; ties go to the lower position."""
    return [int(i) for i in np.argsort(-losses, kind="stable")[:count]]
