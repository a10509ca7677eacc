"""Named random streams: results depend on no order of calls, no number of workers and no engine."""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of that name: the same wherever and in whatever order it is asked for."""
    digest = hashlib.sha256("\0".join([str(seed), *map(str, names)]).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
