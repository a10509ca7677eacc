"""The arrays that parts hand on, by what they hold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Singles = NDArray[np.float32]
Floats = NDArray[np.floating[Any]]
Numbers = NDArray[np.floating[Any] | np.integer[Any]]
Integers = NDArray[np.int64]
Labels = NDArray[np.int64]  # a class or a cluster per sample or client
Mask = NDArray[np.bool_]
