"""The random numbers of dropout: a function of (seed, step, layer, value, sample), the same everywhere."""

from typing import Any

from numba import types

from lanes.compiled.jit import inline
from lanes.compiled.native import u32

u64: Any = types.uint64


@inline
def scramble(h: Any) -> Any:
    """A 32-bit number into one that looks random (the finaliser of MurmurHash3)."""
    h = u32(h)
    h = u32(h ^ (h >> u32(16)))
    h = u32(h * u32(0x85EBCA6B))
    h = u32(h ^ (h >> u32(13)))
    h = u32(h * u32(0xC2B2AE35))
    return u32(h ^ (h >> u32(16)))


@inline
def dropout_key(seed: int, step: int, layer: int) -> Any:
    """One 32-bit key per layer and step of a training run with this seed (the steps of SplitMix64)."""
    z = u64(seed) + u64(step + 1) * u64(0x9E3779B97F4A7C15) + u64(layer + 1) * u64(0xD1B54A32D192ED03)
    z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return u32((z ^ (z >> u64(31))) & u64(0xFFFFFFFF))
