"""How every kernel is compiled: no interpreter lock, no allocation, no wrappers for Python.

Numba compiles a function again for an argument that is a literal: pass `int64(0)`, not 0.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
    "boundscheck": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}


def jit(function: F) -> F:
    compiled: F = njit(**OPTIONS)(function)
    return compiled


def inline(function: F) -> F:
    compiled: F = njit(forceinline=True, **OPTIONS)(function)
    return compiled
