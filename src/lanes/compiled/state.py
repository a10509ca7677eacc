"""What an operation of the machine may touch."""

from typing import Any, NamedTuple

from lanes.compiled.update import Update


class Machine(NamedTuple):
    """Everything an operation may touch."""

    work: Any  # workspace, floats
    marks: Any  # workspace, bytes
    scratch: Any  # workspace, one int64 per lane
    tables: Any  # constants of the program
    row: Any  # the model
    update: Update
    x: Any
    labels: Any
    targets: Any
    out: Any
    batch: Any  # indices of this batch's samples
    size: int  # samples in this batch
    seed: int  # of dropout
    step: int  # which batch this is
