"""The operations of the training machine; what fields each takes is in `instructions.py`."""

from enum import IntEnum

WIDTH = 64  # int64 values in a row of a program: the operation and its fields
# Object files with operations: `machine` is needed by every model, the others by those that have such layers.
PARTS = ("machine", "images", "windows", "norms", "winograd")
PER_PART = 32  # operation // PER_PART is the part's number


class Operation(IntEnum):
    """The first field of a row."""

    GATHER = 0
    SCATTER = 1
    ZERO = 2
    COPY = 3
    ADD = 4
    LINEAR = 5
    LINEAR_GRAD = 6
    RELU = 7
    RELU_BACK = 8
    TANH = 9
    TANH_BACK = 10
    SIGMOID = 11
    SIGMOID_BACK = 12
    DROPOUT = 13
    CROSS_ENTROPY = 14
    SQUARED_ERROR = 15
    FINISH = 16
    FINISH_ALL = 17
    LINEAR_SQUARES = 18
    CONV_SQUARES = 19
    LENGTHS = 20
    WEIGH = 21

    CONV = 32
    CONV_POOL = 33
    CONV_GRAD = 34
    DELTA = 35
    MAX_POOL = 36

    WINDOW_MAX = 64
    WINDOW_MAX_BACK = 65
    WINDOW_MEAN = 66
    WINDOW_MEAN_BACK = 67

    NORM = 96
    NORM_FIXED = 97
    NORM_BACK = 98
    RESCALE = 99

    FAST_CONV = 128
    FAST_GRAD = 129
    FAST_WEIGHTS = 130
    FAST_SUM = 131
    TURNED_GRAD = 132
    WHOLE_CONV = 133
    WHOLE_GRAD = 134
