"""The arrays that parts hand on, by what they hold."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Labels = NDArray[np.int64]  # a class or a cluster per sample or client
