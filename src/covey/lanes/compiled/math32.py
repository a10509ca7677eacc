"""Functions of float32 that LLVM can vectorise, and the random numbers of dropout."""

from typing import Any

import numpy as np
from numba import types

from covey.lanes.compiled.jit import inline
from covey.lanes.compiled.native import f32, u32

i32: Any = types.int32
u64: Any = types.uint64


@inline
def exp(x: Any) -> Any:
    """e^x = 2^n * e^r with |r| <= ln(2) / 2, by Taylor's polynomial of degree 7; for x <= 88."""
    low = x < f32(-87.0)
    inside = f32(0) if low or x != x else min(x, f32(88.0))
    n = f32(np.floor(inside * f32(1.4426950408889634) + f32(0.5)))
    r = (x - n * f32(0.693359375)) + n * f32(2.12194440e-4)
    p = f32(1 / 5040)
    p = p * r + f32(1 / 720)
    p = p * r + f32(1 / 120)
    p = p * r + f32(1 / 24)
    p = p * r + f32(1 / 6)
    p = p * r + f32(0.5)
    p = p * r + f32(1)
    p = p * r + f32(1)
    power = np.int32((i32(n) + i32(127)) << i32(23)).view(np.float32)
    return f32(0) if low else p * power


@inline
def sigmoid(x: Any) -> Any:
    return f32(1) / (f32(1) + exp(-x))


@inline
def tanh(x: Any) -> Any:
    """(1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; near zero, where that cancels, Taylor's."""
    a = abs(x)
    e = exp(f32(-2) * a)
    large = (f32(1) - e) / (f32(1) + e)
    y = x * x
    small = a * (f32(1) + y * (f32(-1 / 3) + y * (f32(2 / 15) + y * (f32(-17 / 315) + y * f32(62 / 2835)))))
    value = small if a < f32(0.25) else large
    return -value if x < f32(0) else value


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
    """One 32-bit key a layer and a step of a training run with this seed (the steps of SplitMix64)."""
    z = u64(seed) + u64(step + 1) * u64(0x9E3779B97F4A7C15) + u64(layer + 1) * u64(0xD1B54A32D192ED03)
    z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return u32((z ^ (z >> u64(31))) & u64(0xFFFFFFFF))
