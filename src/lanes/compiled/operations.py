"""The operations of the training machine; what fields each takes is in `instructions.py`."""

from enum import IntEnum

WIDTH = 64  # int64 values in a row of a program: the operation and its fields


class Operation(IntEnum):
    """The first field of a row."""

    GATHER = 0
    SCATTER = 1
    ZERO = 2
    COPY = 3
    ADD = 4
    CONV = 5
    CONV_POOL = 6
    CONV_GRAD = 7
    LINEAR = 8
    LINEAR_GRAD = 9
    RELU = 10
    RELU_BACK = 11
    TANH = 12
    TANH_BACK = 13
    SIGMOID = 14
    SIGMOID_BACK = 15
    DROPOUT = 16
    MAX_POOL = 17
    DELTA = 18
    WINDOW_MAX = 19
    WINDOW_MAX_BACK = 20
    WINDOW_MEAN = 21
    WINDOW_MEAN_BACK = 22
    NORM = 23
    NORM_FIXED = 24
    NORM_BACK = 25
    RESCALE = 26
    CROSS_ENTROPY = 27
    SQUARED_ERROR = 28
    FINISH = 29
    FINISH_ALL = 30
    LINEAR_SQUARES = 31
    CONV_SQUARES = 32
    LENGTHS = 33
    WEIGH = 34
    FAST_CONV = 35
    FAST_GRAD = 36
    FAST_WEIGHTS = 37
    FAST_SUM = 38
    TURNED_GRAD = 39
    WHOLE_CONV = 40
    WHOLE_GRAD = 41
