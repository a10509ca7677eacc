"""What only some models need, each part an object file of its own: an operation on the blocks b0 to b1."""

from typing import Any

from lanes.compiled import convolutions, turned, whole
from lanes.compiled import fast_instructions as fast
from lanes.compiled import instructions as do
from lanes.compiled import norms as normalised
from lanes.compiled import windows as slid
from lanes.compiled import winograd as quick
from lanes.compiled.jit import jit
from lanes.compiled.native import at, fields, int64
from lanes.compiled.operations import Operation

POOLING, ROWS = len(do.Conv._fields), len(do.Rows._fields)
STRIP, FAST = len(fast.Strip._fields), len(fast.Strip._fields) + len(fast.Fast._fields)
WEIGHTS = FAST + len(do.Pooling._fields)


@jit
def images(s: Any, operation: int, c: Any, b0: int, b1: int) -> None:
    """Convolutions, directly."""
    for b in range(b0, b1):
        if operation == Operation.CONV:
            convolutions.conv(s, fields(do.Conv, c), b)
        elif operation == Operation.CONV_POOL:
            convolutions.conv_pool(s, fields(do.Conv, c), fields(do.Pooling, at(c, POOLING)), b)
        elif operation == Operation.CONV_GRAD:
            convolutions.conv_grad(s, fields(do.ConvGrad, c), b)
        elif operation == Operation.DELTA:
            convolutions.delta(s, fields(do.Delta, c), b)
        elif operation == Operation.MAX_POOL:
            convolutions.max_pool(s, fields(do.Rows, c), fields(do.Pooling, at(c, ROWS)), b)


@jit
def windows(s: Any, operation: int, c: Any, b0: int, b1: int) -> None:
    """Pooling in other windows than 2 x 2."""
    for b in range(b0, b1):
        if operation == Operation.WINDOW_MAX:
            slid.window_max(s, fields(do.Window, c), b)
        elif operation == Operation.WINDOW_MAX_BACK:
            slid.window_max_back(s, fields(do.Window, c), b)
        elif operation == Operation.WINDOW_MEAN:
            slid.window_mean(s, fields(do.Window, c), b)
        elif operation == Operation.WINDOW_MEAN_BACK:
            slid.window_mean_back(s, fields(do.Window, c), b)


@jit
def norms(s: Any, operation: int, c: Any, b0: int, b1: int) -> None:
    """Batch normalisation, and arithmetic with fixed numbers."""
    if operation == Operation.NORM:
        normalised.norm(s, fields(do.Norm, c), b0, b1)
    elif operation == Operation.NORM_BACK:
        normalised.norm_back(s, fields(do.Norm, c), b0, b1)
    else:
        for b in range(b0, b1):
            if operation == Operation.NORM_FIXED:
                normalised.norm_fixed(s, fields(do.Norm, c), b)
            elif operation == Operation.RESCALE:
                normalised.rescale(s, fields(do.Rescale, c), b)


@jit
def winograd(s: Any, operation: int, c: Any, b0: int, b1: int) -> None:
    """Wide layers: by Winograd's method, or with channels in the lanes."""
    if operation == Operation.FAST_WEIGHTS:
        u = fields(fast.FastWeights, c)
        quick.weights(s, u, int64(0), u.inputs if u.flipped else u.outputs)
    elif operation == Operation.FAST_SUM:
        quick.add_up(s, fields(fast.FastSum, c))
    elif operation == Operation.TURNED_GRAD:
        turned.gradient(s, fields(do.TurnedGrad, c), b0, b1)
    elif operation == Operation.WHOLE_CONV:
        pooling, weights = fields(do.Pooling, at(c, FAST)), fields(fast.FastWeights, at(c, WEIGHTS))
        whole.conv(s, fields(fast.Strip, c), fields(fast.Fast, at(c, STRIP)), pooling, weights, b0, b1)
    elif operation == Operation.WHOLE_GRAD:
        whole.gradient(s, fields(fast.Strip, c), fields(fast.WholeGrad, at(c, STRIP)), b0, b1)
    else:
        for b in range(b0, b1):
            if operation == Operation.FAST_CONV:
                pooling = fields(do.Pooling, at(c, FAST))
                quick.conv(s, fields(fast.Strip, c), fields(fast.Fast, at(c, STRIP)), pooling, b)
            elif operation == Operation.FAST_GRAD:
                quick.gradient(s, fields(fast.Strip, c), fields(fast.FastGrad, at(c, STRIP)), b)
