"""A program for the machine as it grows: places in the workspace, tables, operations."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lanes.compiled.isa import Isa
from lanes.compiled.operations import WIDTH, Operation
from lanes.graph import Shape

ALIGN = 16  # floats: a cache line


@dataclass(frozen=True, kw_only=True)
class Program:
    """Ready for the machine; serves batches of up to `blocks` blocks of samples."""

    code: NDArray[np.int64]
    phases: NDArray[np.int64]
    tables: NDArray[np.int64]
    floats: int
    marks: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """`[block][channel][row][column][lane]` in the workspace, each row with zeros left and right of it."""

    place: int
    shape: Shape
    margin: int  # columns of zeros at each side
    block: int  # floats between two blocks; 0: one block serves all
    lanes: int

    @property
    def row(self) -> int:
        return (self.shape.columns + 2 * self.margin) * self.lanes

    @property
    def plane(self) -> int:
        return self.shape.rows * self.row

    @property
    def inside(self) -> int:
        return self.place + self.margin * self.lanes

    def column(self, w: int) -> int:
        """Where column w of the first row is; negative ones are in the margin."""
        return self.inside + w * self.lanes

    def whole(self, name: str) -> dict[str, int]:
        """It as the fields NAME and NAME_block of an instruction that takes all its numbers in a row."""
        return {name: self.place, f"{name}_block": self.block}

    def by_row(self, name: str) -> dict[str, int]:
        """The same with NAME_row, for an instruction that goes row by row."""
        return {name: self.inside, f"{name}_block": self.block, f"{name}_row": self.row}

    def by_channel(self, name: str) -> dict[str, int]:
        """The same with NAME_m, for an instruction that goes channel by channel."""
        return {**self.by_row(name), f"{name}_m": self.plane}

    def seen_as(self, shape: Shape) -> "Tensor":
        """The same numbers in another shape; only without margins."""
        return replace(self, shape=shape)


@dataclass(kw_only=True)
class Writer:
    isa: Isa
    blocks: int
    rows: list[list[int]] = field(default_factory=list)
    by_block: list[bool] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    floats: int = 0
    marks: int = 0

    def place(self, size: int) -> int:
        start = self.floats
        self.floats += -(-size // ALIGN) * ALIGN
        return start

    def tensor(self, shape: Shape, *, margin: int = 0, shared: bool = False) -> Tensor:
        """Room for all blocks, or for one that all share, each while it is worked on."""
        lanes = self.isa.lanes
        size = shape.channels * shape.rows * (shape.columns + 2 * margin) * lanes
        place = self.place(size if shared else size * self.blocks)
        return Tensor(place=place, shape=shape, margin=margin, block=0 if shared else size, lanes=lanes)

    def byte_place(self, size: int) -> int:
        start = self.marks
        self.marks += size
        return start

    def table(self, numbers: Sequence[int] | Sequence[Sequence[int]]) -> int:
        start = len(self.constants)
        for number in numbers:
            self.constants.extend([number] if isinstance(number, int) else number)
        return start

    def lane_places(self, step: int = 1) -> int:
        """The table 0, step * lanes, 2 * step * lanes ..."""
        return self.table([k * step * self.isa.lanes for k in range(self.isa.lanes)])

    def do(self, operation: Operation, *fields: NamedTuple, by_block: bool) -> None:
        """Adds an operation; `by_block`: it may be done block after block together with its neighbours."""
        row = [int(operation), *(int(value) for part in fields for value in part)]
        self.rows.append(row + [0] * (WIDTH - len(row)))
        self.by_block.append(by_block)

    def finish(self) -> Program:
        phases: list[list[int]] = []
        for i, by_block in enumerate(self.by_block):
            if phases and phases[-1][2] == by_block:
                phases[-1][1] = i + 1
            else:
                phases.append([i, i + 1, int(by_block)])
        slack = self.isa.lanes**2  # a transposition reads whole squares
        return Program(
            code=np.array(self.rows, np.int64),
            phases=np.array(phases, np.int64),
            tables=np.array(self.constants or [0], np.int64),
            floats=self.floats + slack,
            marks=max(1, self.marks),
            blocks=self.blocks,
        )
