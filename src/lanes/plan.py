"""Decides whether lanes can train a model, and holds what all its trainers share."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from lanes.compiled.isa import Isa, host
from lanes.compiled.library import Progress, ensure_built, load, parts_of
from lanes.compiled.tiles import shapes
from lanes.graph import Graph, UnsupportedError
from lanes.program import Each, Mode, write
from lanes.samples import no_lengths
from lanes.stages import stages
from lanes.timing import Timing, stage_key, step_seconds, timing_of
from lanes.trainer import Meanwhile, Trainer
from lanes.winograd import form_of_stage
from lanes.workspace import Program

if TYPE_CHECKING:
    from torch import nn

Objective = Literal["cross-entropy", "mse"]
Optimiser = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Refusal:
    """Lanes cannot train this model; PyTorch will."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A model that lanes can train; its row has the parameters in the order of named_parameters()."""

    graph: Graph
    objective: Objective
    optimiser: Optimiser
    isa: Isa
    fast: frozenset[int] | None = (
        None  # stages by Winograd's method; none: those where it was timed to be faster
    )

    @property
    def parameters(self) -> int:
        return self.graph.parameters

    def compile(self, progress: Progress | None = None) -> None:
        """Builds the kernels if this machine does not have them yet, and loads them."""
        ensure_built(self.isa, progress, self.parts)
        load(self.isa, self.parts)

    def trainer(self, meanwhile: Meanwhile = nullcontext) -> Trainer:
        return Trainer(self, meanwhile)

    @functools.cached_property
    def parts(self) -> frozenset[str]:
        """The object files with all that this model may be trained and run with."""
        candidates = frozenset(
            number for number, stage in enumerate(stages(self.graph)) if form_of_stage(stage) is not None
        )
        modes: tuple[Mode, ...] = (self.objective, "forward")
        ways = (frozenset[int](), candidates) if self.fast is None else (self.fast,)
        programs = [_program(self.graph, self.isa, 1, mode, "alike", way) for mode in modes for way in ways]
        return parts_of(int(operation) for program in programs for operation in program.code[:, 0])

    @property
    def no_lengths(self) -> str:
        """Why `Trainer.lengths` cannot be had for this model; nothing where it can."""
        return no_lengths(self.graph)

    def program(self, mode: Mode, blocks: int, each: Each = "alike") -> Program:
        return _program(self.graph, self.isa, blocks, mode, each, self.chosen)

    @property
    def chosen(self) -> frozenset[int]:
        """The stages that convolve by Winograd's method."""
        if self.fast is not None:
            return self.fast
        return frozenset(number for number, timing in self.timings().items() if timing.wins)

    def timings(self) -> dict[int, Timing]:
        """Of the stages that could convolve by Winograd's method, how long both ways take, timed once on a machine."""
        if self.fast is not None:
            return {}
        return {
            number: timing_of(stage, self.isa, self._seconds)
            for number, stage in enumerate(stages(self.graph))
            if form_of_stage(stage) is not None
        }

    def _seconds(self, graph: Graph, fast: frozenset[int]) -> float:
        """CPU seconds of a training step of a small graph."""
        trainer = Plan(graph=graph, objective="mse", optimiser="sgd", isa=self.isa, fast=fast).trainer()
        return step_seconds(trainer, graph)

    def info(self) -> dict[str, Any]:
        """What a run's record says about its trainer."""
        found = stages(self.graph)
        return {
            "trainer": "lanes",
            "isa": self.isa.name,
            "vector_width": self.isa.lanes,
            "kernels": f"{len(shapes(self.isa))} tile shapes",
            "winograd": {
                stage_key(found[number]): asdict(timing) for number, timing in self.timings().items()
            },
            "stages": [type(stage.kind).__name__.lower() for stage in found],
        }


@functools.lru_cache(maxsize=64)
def _program(graph: Graph, isa: Isa, blocks: int, mode: Mode, each: Each, fast: frozenset[int]) -> Program:
    return write(graph, isa, blocks, mode, each, fast)


def plan(
    model: nn.Module, input_shape: tuple[int, ...], objective: Objective, optimiser: Optimiser
) -> Plan | Refusal:
    """How lanes would train this model, or why it cannot."""
    if find_spec("numba") is None:
        return Refusal("numba is not installed")
    if objective not in ("cross-entropy", "mse"):
        return Refusal(f"the objective {objective} is not supported")
    if optimiser not in ("sgd", "adam"):
        return Refusal(f"the optimiser {optimiser} is not supported")
    from lanes.read import read

    try:
        graph = read(model, input_shape, objective)
    except UnsupportedError as reason:
        return Refusal(str(reason))
    return Plan(graph=graph, objective=objective, optimiser=optimiser, isa=host())
