"""Trains and runs one model in one thread: work buffers, and calls of the compiled machine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from lanes.compiled.isa import Isa
from lanes.compiled.library import load
from lanes.graph import Graph
from lanes.program import Each, Mode
from lanes.workspace import Program

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Meanwhile = Callable[[], AbstractContextManager[None]]
FORWARD_BLOCKS = 4  # blocks of samples run forward at a time


class Batches(NamedTuple):
    """Which samples each batch has: batch i is order[offsets[i]:offsets[i + 1]]."""

    order: Ints
    offsets: Ints


def batches_of(parts: Sequence[Ints] | Batches) -> Batches:
    if isinstance(parts, Batches):
        return parts
    offsets = np.array([0, *accumulate(len(part) for part in parts)], np.int64)
    return Batches(np.concatenate(parts) if len(parts) else np.zeros(0, np.int64), offsets)


class Settings(TypedDict, total=False):
    """Of an optimiser's steps; see `Trainer.fit`."""

    lr: Required[float]
    momentum: float
    weight_decay: float
    prox: float
    linear: Floats | None
    velocity: Floats | None
    clip: float | None
    dropout_seed: int
    weights: Floats | None


class _Space(NamedTuple):
    """Work buffers of a program; zero at the start, where the margins of images stay so."""

    program: Program
    floats: Floats
    marks: NDArray[np.uint8]
    places: tuple[int, ...]  # the machine's first arguments, from the program on to the scratch


class Work(NamedTuple):
    """Training that is laid out, to be done once; what it writes to is filled then."""

    mode: Mode
    samples: int  # of its largest batch
    each: Each
    places: tuple[int, ...]  # the machine's other arguments
    used: tuple[Any, ...]  # what these point to
    losses: NDArray[np.float64]  # each batch's mean loss before its step


class Trainer:
    """One for each thread; what it returns does not depend on what it did before.

    meanwhile: what is entered while compiled code runs, which needs no Python.
    """

    def __init__(self, plan: Any, meanwhile: Meanwhile = nullcontext) -> None:
        self._meanwhile = meanwhile
        self._plan = plan
        self._isa: Isa = plan.isa
        self._graph: Graph = plan.graph
        self._run = load(self._isa, plan.parts)
        self._spaces: dict[tuple[Mode, Each], _Space] = {}
        self._result = np.zeros(2, np.int64)  # a call's result, and its exception
        self._scratch = np.zeros(self._isa.lanes, np.int64)
        self._nothing = np.zeros(1, np.int64)  # stands for whatever a call does not need
        self._nowhere = self._nothing.ctypes.data

    def fit(
        self,
        row: Floats,
        x: Floats,
        y: Ints | Floats,
        batches: Sequence[Ints] | Batches,
        **settings: Unpack[Settings],
    ) -> NDArray[np.float64]:
        """Trains the row in place, one step per batch, and returns each batch's mean loss before its step.

        The steps are those of torch.optim.SGD or Adam on loss + prox / 2 * |w - start|^2 + linear . w; `clip`
        is the largest norm of that gradient. `velocity` is SGD's momentum, read and left for a next call. `weights`,
        one for each sample of x, are factors of its gradient; the losses that are returned are without them.
        """
        work = self.ready(row, x, y, batches, **settings)
        self.do([work])
        return work.losses

    def ready(
        self,
        row: Floats,
        x: Floats,
        y: Ints | Floats,
        batches: Sequence[Ints] | Batches,
        *,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        prox: float = 0.0,
        linear: Floats | None = None,
        velocity: Floats | None = None,
        clip: float | None = None,
        dropout_seed: int = 0,
        weights: Floats | None = None,
    ) -> Work:
        """The same with everything looked at and laid out, for `do`."""
        plan, size = self._plan, self._graph.parameters
        order, offsets = batches_of(batches)
        largest = self._check(row, x, order, offsets)
        labels, targets = self._answers(y, len(x))
        losses = np.zeros(len(offsets) - 1)
        adam = plan.optimiser == "adam"
        if velocity is None and (momentum or adam):
            velocity = np.zeros(size, np.float32)
        for name, array in (("velocity", velocity), ("linear", linear), ("weights", weights)):
            if array is not None:
                _expect(array, name, np.float32)
        if weights is not None and len(weights) != len(x):
            raise ValueError(f"{len(x)} samples but {len(weights)} weights")
        return self._work(
            plan.objective,
            largest,
            each="alike" if weights is None else "weighted",
            out=weights,
            row=row,
            start=row[:size].copy() if prox else None,
            linear=linear,
            velocity=velocity,
            second=np.zeros(size, np.float32) if adam else None,
            gradient=np.zeros(size, np.float32) if clip is not None else None,
            settings=np.array([lr, momentum, weight_decay, prox, clip or 0.0], np.float32),
            x=x,
            labels=labels,
            targets=targets,
            order=order,
            offsets=offsets,
            losses=losses,
            flags=(
                dropout_seed & (2**63 - 1),
                size,
                int(adam),
                int(linear is not None),
                int(clip is not None),
            ),
        )

    def do(self, works: Sequence[Work]) -> None:
        """One after the other, in a single call: the interpreter is needed before and after it only."""
        for work in works:
            self._space(work.mode, work.samples, work.each)  # large enough for all before any has its places
        calls = np.array(
            [(*self._space(work.mode, work.samples, work.each).places, *work.places) for work in works],
            np.int64,
        )
        result = self._result.ctypes.data
        with self._meanwhile():
            status = self._run(result, result + 8, calls.ctypes.data, len(calls))
        if status:
            raise RuntimeError(f"the lanes kernels stopped with status {status}")

    def lengths(self, row: Floats, x: Floats, y: Ints | Floats, dropout_seed: int = 0) -> Floats:
        """||gradient of the loss of sample i|| for each sample; with dropout, as the first step of `fit` has it."""
        if why := self._plan.no_lengths:
            raise ValueError(f"no lengths of single gradients: {why}")
        batches = batches_of([np.arange(len(x), dtype=np.int64)])
        largest = self._check(row, x, *batches)
        labels, targets = self._answers(y, len(x))
        found = np.zeros(len(x), np.float32)
        work = self._work(
            self._plan.objective,
            largest,
            each="lengths",
            row=row,
            settings=np.zeros(5, np.float32),
            x=x,
            labels=labels,
            targets=targets,
            out=found,
            order=batches.order,
            offsets=batches.offsets,
            losses=np.zeros(1),
            flags=(dropout_seed & (2**63 - 1), self._graph.parameters, 0, 0, 0),
        )
        self.do([work])
        return found

    def forward(self, row: Floats, x: Floats) -> Floats:
        """The model's output for each sample, in evaluation mode."""
        size = FORWARD_BLOCKS * self._isa.lanes
        offsets = np.append(np.arange(0, len(x), size), len(x)).astype(np.int64)
        order = np.arange(len(x), dtype=np.int64)
        self._check(row, x, order, offsets)
        out = np.zeros((len(x), self._graph.output.features), np.float32)
        work = self._work(
            "forward",
            size,
            row=row,
            settings=np.zeros(5, np.float32),
            x=x,
            out=out,
            order=order,
            offsets=offsets,
            losses=np.zeros(len(offsets) - 1),
            flags=(0, 0, 0, 0, 0),
        )
        self.do([work])
        return out

    def _space(self, mode: Mode, samples: int, each: Each) -> _Space:
        """Work buffers for batches of that many samples, made anew when they have to grow."""
        blocks = max(1, -(-samples // self._isa.lanes))
        space = self._spaces.get((mode, each))
        if space is None or space.program.blocks < blocks:
            program = self._plan.program(mode, blocks, each)
            raw = np.zeros(program.floats + 16, np.float32)
            first = (-raw.ctypes.data % 64) // 4
            aligned = raw[first : first + program.floats]
            marks = np.zeros(program.marks, np.uint8)
            code, phases, tables, floats, bytes_, scratch = (
                array.ctypes.data
                for array in (program.code, program.phases, program.tables, aligned, marks, self._scratch)
            )
            places = (code, phases, len(program.phases), tables, floats, bytes_, scratch)
            space = _Space(program, aligned, marks, places)
            self._spaces[mode, each] = space
        return space

    def _work(
        self,
        mode: Mode,
        samples: int,
        *,
        row: Floats,
        settings: Floats,
        x: Floats,
        order: Ints,
        offsets: Ints,
        losses: NDArray[np.float64],
        flags: tuple[int, int, int, int, int],
        start: Floats | None = None,
        linear: Floats | None = None,
        velocity: Floats | None = None,
        second: Floats | None = None,
        gradient: Floats | None = None,
        labels: Ints | None = None,
        targets: Floats | None = None,
        out: Floats | None = None,
        each: Each = "alike",
    ) -> Work:
        used = (
            row,
            start,
            linear,
            velocity,
            second,
            gradient,
            settings,
            x,
            labels,
            targets,
            out,
            order,
            offsets,
            losses,
        )
        *places, told = [self._nowhere if array is None else array.ctypes.data for array in used]
        return Work(mode, samples, each, (*places, len(losses), told, *flags), used, losses)

    def _check(self, row: Floats, x: Floats, order: Ints, offsets: Ints) -> int:
        """The size of the largest batch. The compiled code trusts its arguments; here is where they are looked at."""
        _expect(row, "row", np.float32)
        _expect(x, "x", np.float32)
        _expect(order, "the batches' order", np.int64)
        _expect(offsets, "the batches' offsets", np.int64)
        if row.shape != (self._graph.size,):
            raise ValueError(f"row has shape {row.shape}, the model {self._graph.size} values")
        if not row.flags.writeable:
            raise ValueError("row cannot be written")
        if len(x) and x[0].size != self._graph.input.features:
            raise ValueError(f"a sample has {x[0].size} values, the model takes {self._graph.input.features}")
        if len(order) and order.view(np.uint64).max() >= len(x):  # a negative number would be huge there
            raise ValueError(f"a batch names sample {order.max()} or {order.min()} of {len(x)}")
        ends = offsets.tolist()
        sizes = [end - start for start, end in pairwise(ends)]
        if ends[0] != 0 or ends[-1] != len(order) or min(sizes, default=1) <= 0:
            raise ValueError("a batch is empty, or the batches' offsets do not cover their order")
        return max(sizes, default=0)

    def _answers(self, y: Ints | Floats, samples: int) -> tuple[Ints | None, Floats | None]:
        """y as (labels, targets), of which the objective needs one."""
        if len(y) != samples:
            raise ValueError(f"{samples} samples but {len(y)} answers")
        if self._plan.objective == "cross-entropy":
            _expect(y, "y", np.int64)
            classes = self._graph.output.features
            if len(y) and y.view(np.uint64).max() >= classes:
                raise ValueError(f"a label is {y.max()} or {y.min()}, the model has {classes} classes")
            return y, None  # type: ignore[return-value]
        _expect(y, "y", np.float32)
        if y.size != samples * self._graph.output.features:
            raise ValueError(f"y has shape {y.shape}, the model returns {self._graph.output.features} values")
        return None, y  # type: ignore[return-value]


def _expect(array: NDArray[Any], name: str, dtype: type) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"{name} is not a contiguous numpy array of {np.dtype(dtype)}")
