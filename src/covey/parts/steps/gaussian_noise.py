"""Gaussian noise: from the run's seed in a simulation, from OpenDP's secure source where data are at stake."""

import os
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.errors import importing


def length(update: Tensor) -> float:
    """||u||, added up in float64."""
    return float(torch.linalg.vector_norm(update, dtype=torch.float64))


def gaussian(values: Tensor, scale: float, rng: np.random.Generator | None) -> Tensor:
    """The values with noise of that standard deviation, in float64; without a generator the noise is OpenDP's."""
    if rng is not None:
        return values.double() + torch.from_numpy(rng.normal(0.0, scale, values.shape))
    noisy = secure_gaussian(scale)(values.double().tolist())
    return torch.tensor(noisy, dtype=torch.float64)


def system_gaussian(count: int, scale: float) -> np.ndarray:
    """`count` Gaussian numbers from the system's randomness, fast enough for every step of training.

    Four are added up, as in Opacus' secure mode, so that the last bits of the sum do not reveal them (Holohan
    and Braghin, 2021).
    """
    return scale * gaussian_of_bytes(os.urandom(32 * count))


def gaussian_of_bytes(uniform: bytes) -> np.ndarray:
    """Standard Gaussian numbers of uniform bytes, 32 for each."""
    from scipy.special import ndtri

    whole = np.frombuffer(uniform, np.uint64) >> np.uint64(11)
    return np.asarray(ndtri((whole + 0.5) * 2.0**-53).reshape(4, -1).sum(axis=0) / 2)


def opendp_library() -> Any:
    """The package `opendp`, or one sentence on how to get it."""
    with importing(
        "secure noise needs the package opendp: install covey[private], or in a simulation set noise = "
        '"simulated" where there is such a setting'
    ):
        import opendp.prelude as dp
    dp.enable_features("contrib")
    return dp


@lru_cache(maxsize=32)
def secure_gaussian(scale: float) -> Any:
    """OpenDP's Gaussian mechanism on vectors: no floating-point leak, randomness of the system."""
    dp = opendp_library()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)
